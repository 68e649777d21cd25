package coordinatorsettings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
)

// Cluster configures a group of coordinator replicas. One of them leads, and their state is kept in NATS.
type Cluster struct {
	// URLs of the NATS servers with JetStream; empty without replicas
	NATSURLs              config.OneOrMore `yaml:"nats"`
	ConfiguredReplicaName string           `yaml:"name"`   // name of this replica; empty for the host name
	StateCopies           int              `yaml:"copies"` // number of servers that store the state
	Username              string           `yaml:"username"`
	PasswordFile          string           `yaml:"password_file"`
	// CAFile is the file with the certificate authority of the NATS servers. If it is empty, the system's root
	// certificates are used.
	CAFile   string `yaml:"ca_file"`
	CertFile string `yaml:"cert_file"` // client certificate for the NATS servers
	KeyFile  string `yaml:"key_file"`
}

// IsEnabled reports whether the state is kept in NATS for replicas.
func (x *Cluster) IsEnabled() bool { return len(x.NATSURLs) > 0 }

// ReplicaName returns the configured name of this replica, or else the host name.
func (x *Cluster) ReplicaName() (string, error) {
	if x.ConfiguredReplicaName != "" {
		return x.ConfiguredReplicaName, nil
	}
	return os.Hostname()
}

// Password returns the password for the servers, or "" if none is configured.
func (x *Cluster) Password() (string, error) {
	if x.PasswordFile == "" {
		return "", nil
	}
	password, _, err := config.ReadSecret("", settings.ResolveSecretFile(x.PasswordFile), "nats-password", "")
	return string(password), err
}

// PrivateKeyFile returns the path of the client certificate's private key, or "" if none is configured.
func (x *Cluster) PrivateKeyFile() string { return settings.ResolveSecretFile(x.KeyFile) }

// checkCertificateFiles returns an error for the first file that cannot be used.
func (x *Cluster) checkCertificateFiles() error {
	if x.CAFile != "" {
		pem, err := os.ReadFile(x.CAFile)
		if err != nil {
			return &spec.FieldError{Key: "cluster.ca_file", Problem: err.Error()}
		}
		if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			return &spec.FieldError{Key: "cluster.ca_file", Problem: x.CAFile + " contains no certificate in PEM " +
				"format"}
		}
	}
	if x.CertFile == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(x.CertFile, x.PrivateKeyFile()); err != nil {
		return &spec.FieldError{Key: "cluster.cert_file", Problem: err.Error()}
	}
	if err := keys.CheckPermissions(x.PrivateKeyFile()); err != nil {
		return &spec.FieldError{Key: "cluster.key_file", Problem: err.Error()}
	}
	return nil
}

// checkCluster validates the cluster section and reports each problem under the section's YAML keys.
func checkCluster(c *settings.SettingsChecker, x *Cluster) {
	const key = "cluster.nats"
	if !x.IsEnabled() {
		c.Require(x.ConfiguredReplicaName == "" && x.Username == "" && x.PasswordFile == "" && x.CAFile == "" &&
			x.CertFile == "" &&
			x.KeyFile == "", key, "is empty, but other keys of cluster are set: set it to the URLs of the NATS "+
			"servers, such as nats://n1.example:4222")
		return
	}
	for _, text := range x.NATSURLs {
		u, err := url.Parse(text)
		good := err == nil && slices.Contains([]string{"nats", "tls"}, u.Scheme) && u.Hostname() != "" &&
			u.Port() != "" && u.User == nil && strings.Trim(u.Path, "/") == ""
		c.Require(good, key, "must be nats://HOST:PORT or tls://HOST:PORT, without a user, but is %q", text)
	}
	name, err := x.ReplicaName()
	c.AddError("cluster.name", err)
	c.Require(err != nil || name != "" && len(name) <= 64 && !strings.ContainsAny(name, " \t\n\""), "cluster.name",
		"must have 1 to 64 bytes, without spaces or quotation marks, but is %q", name)
	c.Require(x.StateCopies == 1 || x.StateCopies == 3 || x.StateCopies == 5, "cluster.copies",
		"must be 1, 3 or 5, but is %d", x.StateCopies)
	c.Require((x.CertFile == "") == (x.KeyFile == ""), "cluster.cert_file",
		"must be set together with cluster.key_file, or not at all")
	c.Require((x.Username == "") == (x.PasswordFile == ""), "cluster.username",
		"must be set together with cluster.password_file, or not at all")
	_, err = x.Password()
	c.AddError("cluster.password_file", err)
	if (x.CertFile == "") == (x.KeyFile == "") {
		var field *spec.FieldError
		if errors.As(x.checkCertificateFiles(), &field) {
			c.Require(false, field.Key, "%s", field.Problem)
		}
	}
}

// NATSBucketName returns the name of the NATS bucket with the replicas' state.
func (s *ConfigFile) NATSBucketName() string { return fmt.Sprintf("fedmesh_%s", s.Federation) }
