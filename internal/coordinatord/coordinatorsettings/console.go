package coordinatorsettings

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// Console configures the web console and the HTTP API over TCP.
type Console struct {
	Listen       string `yaml:"listen"`         // host:port; empty disables the console
	Control      bool   `yaml:"control"`        // permits changes to callers with the role operate
	TokensFile   string `yaml:"tokens_file"`    // see api.TokenFile; without it the console is open to this machine
	CertFile     string `yaml:"cert_file"`      // TLS certificate file
	KeyFile      string `yaml:"key_file"`       // private key of the certificate
	ClientCAFile string `yaml:"client_ca_file"` // certificate authorities of client certificates
	// URLByReplica contains the addresses of the consoles of all coordinators by name, if several share the state.
	URLByReplica map[string]string `yaml:"urls"`
}

// checkConsole validates the section console. Access over a network requires TLS, because an intercepted token would
// let an attacker run commands.
func checkConsole(c *settings.SettingsChecker, s *Console) {
	if s.Listen == "" {
		c.Require(s.TokensFile == "" && s.CertFile == "" && s.KeyFile == "" && s.ClientCAFile == "" && !s.Control,
			"console.listen", "is empty, but other keys of console are set: set it to host:port")
		return
	}
	host, _, err := net.SplitHostPort(s.Listen)
	c.AddError("console.listen", err)
	ip := net.ParseIP(host)
	isLoopback := host == "localhost" || ip != nil && ip.IsLoopback()
	c.Require(isLoopback || s.CertFile != "", "console.cert_file",
		"is required because console.listen (%s) is not a loopback address", s.Listen)
	c.Require((s.CertFile == "") == (s.KeyFile == ""), "console.key_file", "must be set together with "+
		"console.cert_file, or not at all")
	c.Require(isLoopback || s.TokensFile != "", "console.tokens_file",
		"is required because console.listen (%s) is not a loopback address", s.Listen)
	c.Require(!s.Control || s.TokensFile != "", "console.tokens_file", "is required because console.control is true")
	c.Require(s.ClientCAFile == "" || s.CertFile != "" && s.TokensFile != "", "console.client_ca_file",
		"requires console.cert_file, and console.tokens_file with the names of the certificates")
	if s.TokensFile != "" {
		c.AddError("console.tokens_file", api.TokenFile(s.TokensFile).Check())
	}
	if _, err = s.TLS(); err != nil {
		c.AddError("console.cert_file", err)
	}
	for name, address := range s.URLByReplica {
		u, err := url.Parse(address)
		c.Require(err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "", "console.urls",
			"%s: want the address of a console, such as https://%[1]s.example:9466/, but found %q", name, address)
	}
}

// TLS returns the TLS configuration of the console, or nil if no certificate is configured. Each new connection uses
// the certificate now in the files, or the first one if the files cannot be read.
func (s *Console) TLS() (*tls.Config, error) {
	if s.CertFile == "" || s.KeyFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if fresh, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile); err == nil {
				return &fresh, nil
			}
			return &pair, nil
		}}
	if s.ClientCAFile != "" {
		authorities, err := os.ReadFile(s.ClientCAFile)
		if err != nil {
			return nil, err
		}
		cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s contains no certificate in PEM format", s.ClientCAFile)
		}
	}
	return cfg, nil
}
