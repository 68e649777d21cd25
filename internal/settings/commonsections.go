// Package settings defines agentd.yaml, the task section of coordinator.yaml, and the sections that both files share.
// Both programs read both files: the coordinator sends a part of agentd.yaml to joining devices, and `agentd data
// check` reads a task from coordinator.yaml.
package settings

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Broker configures the connection to an MQTT broker and how the daemon uses it.
type Broker struct {
	BrokerAccess `yaml:",inline"`
	Prefix       string `yaml:"prefix"` // prefix of all MQTT topics
	QoS          int    `yaml:"qos"`    // MQTT quality of service of all messages and subscriptions: 0 or 1
}

// BrokerAccess configures the connection to a broker.
type BrokerAccess struct {
	URLs         config.OneOrMore `yaml:"url"`      // URLs of the broker; several URLs for the nodes of a cluster
	Username     string           `yaml:"username"` // user name; empty means the client id
	Password     config.Secret    `yaml:"password"`
	PasswordFile string           `yaml:"password_file"`
	// file with the certificate authority; empty for the system's authorities
	CAFile    string        `yaml:"ca_file"`
	CertFile  string        `yaml:"cert_file"` // client certificate file
	KeyFile   string        `yaml:"key_file"`
	TLSMin    string        `yaml:"tls_min"` // minimum version of TLS: 1.2 or 1.3
	KeepAlive time.Duration `yaml:"keep_alive"`
	// MinRate is the lowest expected data rate of the connection in bytes per second.
	MinRate      spec.ByteSize `yaml:"min_rate"`
	HTTPProxyURL string        `yaml:"proxy"` // http://host:port of an HTTP proxy to the broker

	// renewedCertificateFor returns the certificate that replaces the configured certificate. If the function is nil,
	// the configured certificate is used.
	renewedCertificateFor func(configured tls.Certificate) tls.Certificate `yaml:"-"`
	// systemdCredentialName is the name of the systemd credential that contains the broker password. If it is empty,
	// the credential is called mqtt-password.
	systemdCredentialName string `yaml:"-"`
}

// Log configures the log on stderr.
type Log struct {
	Level  string `yaml:"level"`  // minimum level: debug, info, warn or error
	Format string `yaml:"format"` // output format: text or json
}

// Metrics configures the metrics server.
type Metrics struct {
	Listen string `yaml:"listen"` // address of the metrics server as host:port; empty means no server
}

// DefaultBroker returns the defaults of a broker section.
func DefaultBroker() Broker {
	return Broker{BrokerAccess: BrokerAccess{URLs: config.OneOrMore{"tcp://127.0.0.1:1883"}, KeepAlive: time.Minute,
		MinRate: mqtt.DefaultMinLinkRate, TLSMin: defaultMinTLSVersion}}
}

// The minimum TLS versions that can be configured for a broker. The first version is the default.
const (
	defaultMinTLSVersion = "1.3"
	olderTLSVersion      = "1.2"
)

// minLinkRate and maxLinkRate limit the key min_rate, in bytes per second. On a link slower than minLinkRate, the
// coordinator's timeout for a chunk would expire before the chunk arrives. maxLinkRate fits into a 32-bit int.
const (
	minLinkRate = 1000
	maxLinkRate = 1_000_000_000
)

// SettingsChecker collects the problems of a configuration.
type SettingsChecker struct{ spec.ProblemList }

// CheckBroker reports every problem of a broker section, each with its configuration key.
func (c *SettingsChecker) CheckBroker(b *Broker, federation string) {
	var encryption *tls.Config
	if wire.FederationName(federation).Validate() == nil {
		_, err := mqtt.NewTopics(b.Prefix, federation)
		c.AddError("broker.prefix", err)
	}
	switch {
	case (b.CertFile == "") != (b.KeyFile == ""):
		c.Require(false, "broker.cert_file", "must be set together with broker.key_file, or not at all")
	case b.Password != "" && b.PasswordFile != "":
		c.Require(false, "broker.password", "cannot be combined with broker.password_file: remove one of the two keys")
	default:
		o, _, err := b.SessionOptions("check")
		c.AddSectionErrors("", err)
		encryption = o.TLS // TLS options are allowed only with some URL schemes
	}
	c.checkBrokerURLs(b.URLs, encryption)
	c.Require(b.TLSMin == defaultMinTLSVersion || b.TLSMin == olderTLSVersion, "broker.tls_min",
		"must be %s or %s, but is %q", olderTLSVersion,
		defaultMinTLSVersion, b.TLSMin)
	c.Require(b.KeepAlive >= time.Second && b.KeepAlive <= 65535*time.Second && b.KeepAlive%time.Second == 0,
		"broker.keep_alive",
		"must be between 1s and 65535s, in whole seconds, but is %s", b.KeepAlive)
	c.Require(b.QoS == 0 || b.QoS == 1, "broker.qos", "must be 0 or 1, but is %d", b.QoS)
	c.Require(b.MinRate >= minLinkRate && b.MinRate <= maxLinkRate, "broker.min_rate",
		"must be between 1kB and 1GB per second, but is %s", b.MinRate)
	if b.MinRate >= minLinkRate && b.MinRate <= maxLinkRate {
		least := mqtt.MinKeepAlive(int(b.MinRate))
		c.Require(b.KeepAlive < time.Second || b.KeepAlive >= least, "broker.keep_alive",
			"must be at least %s for a link rate of %s per second (broker.min_rate), but is %s: sending a single "+
				"message may take an eighth of this time", least, b.MinRate, b.KeepAlive)
	}
}

// checkBrokerURLs validates each URL separately, and then all URLs together.
func (c *SettingsChecker) checkBrokerURLs(urls []string, encryption *tls.Config) {
	const key = "broker.url"
	before := c.ProblemCount()
	for i, u := range urls {
		at := key
		if len(urls) > 1 {
			at = fmt.Sprintf("%s[%d]", key, i)
		}
		c.AddError(at, mqtt.Options{URL: u, ClientID: "check", TLS: encryption}.Validate())
	}
	c.Require(len(urls) > 0, key, "must not be empty: set it to the URL of the broker, such as tcp://127.0.0.1:1883")
	if c.ProblemCount() == before {
		c.AddError(key, mqtt.Options{URL: urls[0], MoreURLs: urls[1:], ClientID: "check", TLS: encryption}.Validate())
	}
}

// CheckMetricsListen reports a metrics.listen that does not have the form host:port.
func (c *SettingsChecker) CheckMetricsListen(address string) {
	if address != "" {
		_, _, err := net.SplitHostPort(address)
		c.Require(err == nil, "metrics.listen", "must be host:port, such as 127.0.0.1:9464, or empty, but is %q",
			address)
	}
}

// CheckLog reports every problem of a log section, each with its configuration key.
func (c *SettingsChecker) CheckLog(l *Log) {
	_, err := logging.ParseLevel(l.Level)
	c.AddError("log.level", err)
	_, err = logging.New(nil, logging.Options{Level: "info", Format: l.Format})
	c.AddError("log.format", err)
}

// SessionOptions returns the options for a session with the broker. warning is not empty if other users can read a file
// that contains a secret. The returned error is a [*spec.FieldError].
func (b *Broker) SessionOptions(clientID string) (o mqtt.Options, warning string, err error) {
	password, warning, err := b.readPassword()
	if err != nil {
		return o, "", err
	}
	o = mqtt.Options{ClientID: clientID, Username: b.Username, Password: password, KeepAlive: b.KeepAlive,
		MinLinkRate: int(b.MinRate), MinQoS: mqtt.QoS(b.QoS)}
	o.RenewCredentials = func() (string, *tls.Config, error) {
		password, _, err1 := b.readPassword()
		encryption, err2 := b.tlsConfig()
		return password, encryption, errors.Join(err1, err2)
	}
	if len(b.URLs) > 0 { // if there are no URLs, the validation of the session options reports the problem
		o.URL, o.MoreURLs = b.URLs[0], b.URLs[1:]
	}
	if o.Username == "" && o.Password != "" {
		o.Username = clientID
	}
	if b.HTTPProxyURL != "" {
		o.Proxy, err = url.Parse(b.HTTPProxyURL)
		if err != nil || o.Proxy.Scheme != "http" || o.Proxy.Hostname() == "" || o.Proxy.Port() == "" {
			return o, "", &spec.FieldError{Key: "broker.proxy",
				Problem: "must be http://host:port, with user:password@ before the host if the proxy requires it"}
		}
	}
	o.TLS, err = b.tlsConfig()
	return o, warning, err
}

// readPassword returns the broker password. warning is not empty if other users can read the password file.
func (b *BrokerAccess) readPassword() (password, warning string, err error) {
	secret, warning, err := config.ReadSecret(b.Password, ResolveSecretFile(b.PasswordFile),
		cmp.Or(b.systemdCredentialName, "mqtt-password"), os.Getenv("CREDENTIALS_DIRECTORY"))
	if err != nil {
		return "", "", &spec.FieldError{Key: "broker.password", Problem: err.Error()}
	}
	return string(secret), warning, nil
}

// tlsConfig returns the TLS configuration with all certificates loaded. If all TLS settings have their default values,
// it returns nil.
func (b *BrokerAccess) tlsConfig() (*tls.Config, error) {
	if b.CAFile == "" && b.CertFile == "" && b.TLSMin != olderTLSVersion {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13}
	if b.TLSMin == olderTLSVersion {
		cfg.MinVersion = tls.VersionTLS12
	}
	if b.CAFile != "" {
		pem, err := os.ReadFile(b.CAFile)
		if err != nil {
			return nil, &spec.FieldError{Key: "broker.ca_file", Problem: err.Error()}
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &spec.FieldError{Key: "broker.ca_file", Problem: b.CAFile + " contains no certificate in PEM " +
				"format"}
		}
	}
	if b.CertFile != "" {
		cert, err := b.Certificate()
		if err != nil {
			return nil, err
		}
		if b.renewedCertificateFor != nil {
			cert = b.renewedCertificateFor(cert)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}

// WithCertificateRenewal returns a copy of b whose client certificate can be renewed. Each new session calls current
// with the configured certificate and uses the certificate that current returns.
func (b Broker) WithCertificateRenewal(current func(configured tls.Certificate) tls.Certificate) *Broker {
	b.renewedCertificateFor = current
	return &b
}

// Certificate loads the client certificate with its private key. If no certificate is configured, it returns an empty
// certificate.
func (b *BrokerAccess) Certificate() (cert tls.Certificate, err error) {
	if b.CertFile == "" {
		return cert, nil
	}
	key := ResolveSecretFile(b.KeyFile)
	if cert, err = tls.LoadX509KeyPair(b.CertFile, key); err != nil {
		return cert, &spec.FieldError{Key: "broker.cert_file", Problem: err.Error()}
	}
	if err := keys.CheckPermissions(key); err != nil {
		return cert, &spec.FieldError{Key: "broker.key_file", Problem: err.Error()}
	}
	return cert, nil
}

// Load reads the configuration of a daemon into cfg. Later sources override earlier sources: the defaults in cfg, the
// file, environment variables with the program's prefix, and the command line.
func Load(cfg any, program, path string, overrides map[string]string) error {
	return config.Load(cfg, config.Source{
		Path: path, EnvPrefix: strings.ToUpper(program), Environ: os.Environ(), Overrides: overrides,
		IgnoredVariables: []string{ConfigPathVariable(program)},
	})
}

// ConfigPathVariable returns the name of the environment variable that contains the path of a program's configuration
// file. The flag --config overrides this variable.
func ConfigPathVariable(program string) string { return strings.ToUpper(program) + "_CONFIG" }
