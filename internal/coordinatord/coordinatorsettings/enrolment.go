package coordinatorsettings

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Enrolment configures how devices join the federation.
type Enrolment struct {
	Listen             string `yaml:"listen"`       // host:port; empty disables enrolment
	JoinURL            string `yaml:"url"`          // https://host:port at which devices reach the listener
	RootFile           string `yaml:"root_file"`    // file with the root document of the federation
	CAFile             string `yaml:"ca_file"`      // certificate of the authority that signs device certificates
	CAKeyFile          string `yaml:"ca_key_file"`  // private key of the authority
	DeviceTemplateFile string `yaml:"devices_file"` // agentd.yaml with the broker keys that all devices share
	// Mosquitto access rules, rewritten when the list changes; empty for none
	ACLFile string `yaml:"acl"`
	// CertificateLife is the validity of a device's certificate. The device renews it after two thirds of that time.
	CertificateLife time.Duration `yaml:"certificate_life"`
}

// The minimum and default validity of a device's certificate. A device that is offline for longer must join again.
const (
	minCertificateLife = time.Minute
	defaultLife        = 365 * 24 * time.Hour
)

// IsEnabled reports whether devices may join.
func (e *Enrolment) IsEnabled() bool { return e.Listen != "" }

// EnrolmentConfig returns the configuration of the enrolment service. The caller sets the parts that belong to the
// process. The error is a [*spec.FieldError].
func (s *ConfigFile) EnrolmentConfig() (enrol.Config, error) {
	e := &s.Enrolment
	wrong := func(key string, err error) error { return &spec.FieldError{Key: "enrol." + key, Problem: err.Error()} }
	if _, _, err := net.SplitHostPort(e.Listen); err != nil {
		return enrol.Config{}, wrong("listen", err)
	}
	if u, err := url.Parse(e.JoinURL); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" {
		return enrol.Config{}, wrong("url",
			fmt.Errorf("must be https://HOST:PORT, the address at which devices reach enrol.listen, but is %q",
				e.JoinURL))
	}
	roots, err := s.RootDocuments()
	if err != nil {
		return enrol.Config{}, err
	}
	if len(roots) == 0 {
		return enrol.Config{}, wrong("root_file", errors.New("contains no root document: create one with "+
			"`coordinator init`"))
	}
	authority, err := readCertificate(e.CAFile)
	if err != nil {
		return enrol.Config{}, wrong("ca_file", err)
	}
	authorityKey, err := keys.ReadClientKey(settings.ResolveSecretFile(e.CAKeyFile))
	if err != nil {
		return enrol.Config{}, wrong("ca_key_file", err)
	}
	devices, err := settings.ReadUnvalidatedAgent(e.DeviceTemplateFile)
	if err != nil {
		return enrol.Config{}, wrong("devices_file", err)
	}
	key, err := s.CoordinatorPrivateKey()
	if err != nil {
		return enrol.Config{}, &spec.FieldError{Key: "identity.key_file", Problem: err.Error()}
	}
	topics, err := mqtt.NewTopics(s.Broker.Prefix, s.Federation)
	if err != nil {
		return enrol.Config{}, &spec.FieldError{Key: "broker.prefix", Problem: err.Error()}
	}
	if l := e.CertificateLife; l < minCertificateLife || l > enrol.Lifetime {
		return enrol.Config{}, wrong("certificate_life", fmt.Errorf("must be between %s and %s, but is %s",
			minCertificateLife,
			enrol.Lifetime, l))
	}
	cfg := enrol.Config{EncodedRootDocument: roots[len(roots)-1].Bytes(), CoordinatorKey: key,
		SharedDeviceSettings:      devices.SharedSettings(),
		Disk:                      store.LocalDisk,
		DeviceCertificateLifetime: e.CertificateLife,
		CertificateAuthority:      &enrol.CertificateAuthority{Certificate: authority, Key: authorityKey},
		MakeBrokerUserName:        func(id wire.AgentID) string { return topics.ClientID(id) }}
	if err := cfg.CheckKeysMatchRoot(); err != nil {
		return cfg, wrong("root_file", err)
	}
	return cfg, nil
}

// explainMissingFile adds to a "file does not exist" error that `coordinator init` creates the file. It returns other
// errors unchanged.
func explainMissingFile(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; create it with `coordinator init`", err)
	}
	return err
}

func readCertificate(path string) (*x509.Certificate, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return nil, explainMissingFile(err)
	}
	block, _ := pem.Decode(p)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("%s contains no certificate in PEM format", path)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return c, err
}

// checkEnrolment validates the enrolment section if it is enabled.
func checkEnrolment(c *settings.SettingsChecker, s *ConfigFile) {
	if !s.Enrolment.IsEnabled() {
		c.Require(s.Enrolment.JoinURL == "", "enrol.url",
			"is set, but devices cannot join because enrol.listen is empty: set enrol.listen, or remove enrol.url")
		return
	}
	_, err := s.EnrolmentConfig()
	c.AddSectionErrors("", err)
}
