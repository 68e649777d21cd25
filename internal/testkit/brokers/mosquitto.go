package brokers

import (
	"crypto/tls"
	"encoding/pem"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/lab/launch"
)

// AnonymousListenerConf is a mosquitto.conf that lets everyone do everything, for tests that
// are about something else.
const AnonymousListenerConf = "listener 1883\nallow_anonymous true\nset_tcp_nodelay true\n"

// Mosquitto is Debian's Mosquitto.
type Mosquitto struct {
	process
	// MaxOpenFiles is how many files it may have open; 0 = as many as we may.
	MaxOpenFiles int
}

// NewMosquitto lays out a folder for Mosquitto with the lines of conf, in
// which our paths become the folder's, and the listener is on loopback. A test
// without Mosquitto is skipped, but never when CI is true.
func NewMosquitto(t testing.TB, conf []byte) *Mosquitto {
	t.Helper()
	program := FindProgram(t, "mosquitto")
	m := &Mosquitto{process: newProcess(t)}
	m.command = func() *exec.Cmd { return launch.MosquittoCommand(program, m.Dir, m.MaxOpenFiles) }
	m.check = failOnMosquittoComplaint
	m.Configure(t, conf)
	return m
}

// failOnMosquittoComplaint fails a test in which Mosquitto complains.
func failOnMosquittoComplaint(t testing.TB, line string) {
	t.Helper()
	if strings.Contains(line, "should not be run as root") { // as the tests may be
		return
	}
	if strings.Contains(line, "Error") || strings.Contains(line, "Warning") {
		t.Errorf("mosquitto says %q", line)
	}
}

// FindProgram finds a program that a broker is, or that is used with one. Debian keeps some where only root looks for
// them.
func FindProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := launch.FindProgram(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed, and CI needs it", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// OpenMosquitto starts one that lets everybody in until the test ends, and returns its URL. Lines are added to its
// configuration.
func OpenMosquitto(t testing.TB, lines ...string) string {
	t.Helper()
	m := NewMosquitto(t, []byte(AnonymousListenerConf+strings.Join(lines, "\n")))
	m.Start(t)
	return "tcp://" + m.Address
}

// ConfigLines returns the lines of a mosquitto.conf that are not comments.
func ConfigLines(conf []byte) (lines []string) {
	for line := range strings.Lines(string(conf)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// Configure replaces the configuration.
func (m *Mosquitto) Configure(t testing.TB, conf []byte) {
	t.Helper()
	if err := launch.WriteMosquittoConf(conf, m.Dir, m.Address); err != nil {
		t.Fatal(err)
	}
}

// AddUsers gives users their passwords, "password of " and the name, as
// mosquitto_passwd keeps them.
func (m *Mosquitto) AddUsers(t testing.TB, users ...string) {
	t.Helper()
	passwords := map[string]string{}
	for _, u := range users {
		passwords[u] = "password of " + u
	}
	FindProgram(t, "mosquitto_passwd") // skips the test without it
	if err := launch.WriteMosquittoPasswords(m.Dir, passwords); err != nil {
		t.Fatal(err)
	}
}

// AddCertificates makes Mosquitto trust an authority, which issues its
// certificate.
func (m *Mosquitto) AddCertificates(t testing.TB, a *acltest.Authority) {
	t.Helper()
	certificate, key := acltest.PEMOf(t, a.Issue(t, "broker"))
	m.Write(t, "certs/ca.crt", a.PEM())
	m.Write(t, "certs/broker.crt", certificate)
	m.Write(t, "certs/broker.key", key)
}

// WriteRevocations writes the authority's list of revoked certificates.
func (m *Mosquitto) WriteRevocations(t testing.TB, a *acltest.Authority, revoked ...tls.Certificate) {
	t.Helper()
	m.Write(t, "certs/crl.pem", pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: a.Revoke(t, revoked...)}))
}

// Reload returns when what comes from now on is held against the new files:
// Mosquitto has one thread.
func (m *Mosquitto) Reload(t testing.TB) {
	t.Helper()
	m.Signal(t, syscall.SIGHUP)
	m.Await(t, "Reloading config.")
}

// Stop ends Mosquitto as systemd does.
func (m *Mosquitto) Stop(t testing.TB) {
	t.Helper()
	m.Signal(t, syscall.SIGTERM)
	<-m.Ended
}
