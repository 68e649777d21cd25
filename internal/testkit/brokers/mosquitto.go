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

// AnonymousListenerConf is a mosquitto.conf that lets every client access all topics without a password. Tests that are
// not about access control use it.
const AnonymousListenerConf = "listener 1883\nallow_anonymous true\nset_tcp_nodelay true\n"

// Mosquitto is a Mosquitto broker that runs as a process. Mosquitto uses the program installed from the Debian package.
type Mosquitto struct {
	process
	// MaxOpenFiles is the maximum number of open files of the broker process. 0 means that the limit of the test
	// process applies.
	MaxOpenFiles int
}

// NewMosquitto creates a folder for a Mosquitto broker with the configuration conf. It adapts the paths and addresses
// in conf to the test. If Mosquitto is not installed, it skips the test; in CI it fails the test.
func NewMosquitto(t testing.TB, conf []byte) *Mosquitto {
	t.Helper()
	program := FindProgram(t, "mosquitto")
	m := &Mosquitto{process: newProcess(t)}
	m.command = func() *exec.Cmd { return launch.MosquittoCommand(program, m.Dir, m.MaxOpenFiles) }
	m.check = failOnMosquittoComplaint
	m.Configure(t, conf)
	return m
}

// failOnMosquittoComplaint fails the test if a line of Mosquitto's log is a warning or an error.
func failOnMosquittoComplaint(t testing.TB, line string) {
	t.Helper()
	// Ignore this warning, because tests may run as root.
	if strings.Contains(line, "should not be run as root") {
		return
	}
	if strings.Contains(line, "Error") || strings.Contains(line, "Warning") {
		t.Errorf("mosquitto says %q", line)
	}
}

// FindProgram returns the path of an installed program such as mosquitto. It searches PATH and the sbin folders, where
// Debian installs some brokers.
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

// OpenMosquitto starts a Mosquitto broker that accepts anonymous clients and returns its URL. The given lines are
// appended to the broker's configuration.
func OpenMosquitto(t testing.TB, lines ...string) string {
	t.Helper()
	m := NewMosquitto(t, []byte(AnonymousListenerConf+strings.Join(lines, "\n")))
	m.Start(t)
	return "tcp://" + m.Address
}

// ConfigLines returns all lines of a mosquitto.conf except comments and blank lines.
func ConfigLines(conf []byte) (lines []string) {
	for line := range strings.Lines(string(conf)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// Configure replaces Mosquitto's configuration file.
func (m *Mosquitto) Configure(t testing.TB, conf []byte) {
	t.Helper()
	if err := launch.WriteMosquittoConf(conf, m.Dir, m.Address); err != nil {
		t.Fatal(err)
	}
}

// AddUsers adds MQTT users to Mosquitto's password file. The password of user NAME is "password of NAME".
func (m *Mosquitto) AddUsers(t testing.TB, users ...string) {
	t.Helper()
	passwords := map[string]string{}
	for _, u := range users {
		passwords[u] = "password of " + u
	}
	FindProgram(t, "mosquitto_passwd") // Skip the test if mosquitto_passwd is not installed.
	if err := launch.WriteMosquittoPasswords(m.Dir, passwords); err != nil {
		t.Fatal(err)
	}
}

// AddCertificates writes a server certificate for Mosquitto. It also configures the authority as the issuer of client
// certificates.
func (m *Mosquitto) AddCertificates(t testing.TB, a *acltest.Authority) {
	t.Helper()
	certificate, key := acltest.PEMOf(t, a.Issue(t, "broker"))
	m.Write(t, "certs/ca.crt", a.PEM())
	m.Write(t, "certs/broker.crt", certificate)
	m.Write(t, "certs/broker.key", key)
}

// WriteRevocations writes a revocation list of the authority, which revokes the given certificates, into Mosquitto's
// folder.
func (m *Mosquitto) WriteRevocations(t testing.TB, a *acltest.Authority, revoked ...tls.Certificate) {
	t.Helper()
	m.Write(t, "certs/crl.pem", pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: a.Revoke(t, revoked...)}))
}

// Reload makes Mosquitto reload its configuration files. Mosquitto is single-threaded, so every packet that arrives
// after the reload is checked against the new files.
func (m *Mosquitto) Reload(t testing.TB) {
	t.Helper()
	m.Signal(t, syscall.SIGHUP)
	m.Await(t, "Reloading config.")
}

// Stop ends Mosquitto with the signal that systemd sends to stop a service.
func (m *Mosquitto) Stop(t testing.TB) {
	t.Helper()
	m.Signal(t, syscall.SIGTERM)
	<-m.Ended
}
