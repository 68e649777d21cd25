package brokers

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
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
	m.command = func() *exec.Cmd {
		descriptors := "$(ulimit -H -n)" // a login's 1,024 are too few for a thousand clients
		if m.MaxOpenFiles > 0 {
			descriptors = strconv.Itoa(m.MaxOpenFiles)
		}
		return exec.Command("/bin/sh", "-c", `ulimit -n "`+descriptors+`" && exec "$0" -c "$1"`, program,
			filepath.Join(m.Dir, "mosquitto.conf"))
	}
	m.log = func(cmd *exec.Cmd) (io.ReadCloser, error) { return cmd.StderrPipe() }
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
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
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
	host, port, err := net.SplitHostPort(m.Address)
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, line := range ConfigLines(conf) {
		if strings.HasPrefix(line, "listener ") {
			line = "listener " + port + " " + host
		}
		line = strings.Replace(line, "/etc/mosquitto/", m.Dir+"/", 1)
		line = strings.Replace(line, "/var/lib/mosquitto/", m.Dir+"/", 1)
		fmt.Fprintln(&text, line)
	}
	fmt.Fprintln(&text, "user", me.Username) // root would become somebody who cannot read the folder
	m.Write(t, "mosquitto.conf", text.Bytes())
}

// AddUsers gives users their passwords, "password of " and the name, as
// mosquitto_passwd keeps them.
func (m *Mosquitto) AddUsers(t testing.TB, users ...string) {
	t.Helper()
	var plain bytes.Buffer
	for _, u := range users {
		fmt.Fprintf(&plain, "%s:password of %s\n", u, u)
	}
	m.Write(t, "passwd", plain.Bytes())
	if out, err := exec.Command(FindProgram(t, "mosquitto_passwd"),
		"-U", filepath.Join(m.Dir, "passwd")).CombinedOutput(); err != nil {
		t.Fatalf("mosquitto_passwd: %v: %s", err, out)
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
	m.wait()
}
