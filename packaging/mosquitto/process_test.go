package mosquitto_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/mqtt/broker/acl/acltest"
)

// patience bounds each wait for an event; no test waits that long.
const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is a Mosquitto with one of our files, in a folder of its own.
type process struct {
	dir, address string
	cmd          *exec.Cmd
	lines        chan string // of its log; closed at its end
}

// tool finds a program of Mosquitto's. Debian keeps the broker where only root looks for it.
func tool(t *testing.T, name string) string {
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

// newProcess lays out a folder in which conf can run. It does not start it.
func newProcess(t *testing.T, conf, acl []byte) *process {
	t.Helper()
	tool(t, "mosquitto")
	listener, err := net.Listen("tcp", "127.0.0.1:0") // for a free port
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	p := &process{dir: t.TempDir(), address: listener.Addr().String()}
	p.configure(t, string(conf))
	p.write(t, "acl", acl)
	return p
}

// configure writes mosquitto.conf: our paths become the folder's, and the
// listener is on loopback.
func (p *process) configure(t *testing.T, conf string) {
	t.Helper()
	host, port, err := net.SplitHostPort(p.address)
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, line := range settings([]byte(conf)) {
		if strings.HasPrefix(line, "listener ") {
			line = "listener " + port + " " + host
		}
		line = strings.Replace(line, "/etc/mosquitto/", p.dir+"/", 1)
		line = strings.Replace(line, "/var/lib/mosquitto/", p.dir+"/", 1)
		fmt.Fprintln(&text, line)
	}
	fmt.Fprintln(&text, "user", me.Username) // root would become somebody who cannot read the folder
	p.write(t, "mosquitto.conf", text.Bytes())
}

func (p *process) write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// addUsers gives users their passwords, as mosquitto_passwd keeps them.
func (p *process) addUsers(t *testing.T, users ...string) {
	t.Helper()
	var plain bytes.Buffer
	for _, u := range users {
		fmt.Fprintf(&plain, "%s:password of %s\n", u, u)
	}
	p.write(t, "passwd", plain.Bytes())
	if out, err := exec.Command(tool(t, "mosquitto_passwd"), "-U", filepath.Join(p.dir, "passwd")).CombinedOutput(); err != nil {
		t.Fatalf("mosquitto_passwd: %v: %s", err, out)
	}
}

// addCertificates makes the broker trust an authority, which issues its
// certificate.
func (p *process) addCertificates(t *testing.T, a *acltest.Authority) {
	t.Helper()
	own := a.Issue(t, "broker")
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"ca.crt":     {Type: "CERTIFICATE", Bytes: a.Certificate.Raw},
		"broker.crt": {Type: "CERTIFICATE", Bytes: own.Certificate[0]},
		"broker.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		p.write(t, "certs/"+name, pem.EncodeToMemory(block))
	}
}

func (p *process) writeRevocations(t *testing.T, a *acltest.Authority, revoked ...tls.Certificate) {
	t.Helper()
	p.write(t, "certs/crl.pem", pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: a.Revoke(t, revoked...)}))
}

// start returns when Mosquitto says that it runs, and nothing is wrong.
func (p *process) start(t *testing.T) {
	t.Helper()
	p.cmd = exec.Command(tool(t, "mosquitto"), "-c", filepath.Join(p.dir, "mosquitto.conf"))
	output, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = make(chan string, 10000)
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			select {
			case p.lines <- scanner.Text():
			default: // more than anyone looks at
			}
		}
	}()
	t.Cleanup(p.stop)
	p.await(t, " running")
}

// await returns when the log has a line with this end.
func (p *process) await(t *testing.T, end string) {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, ok := <-p.lines:
			switch {
			case !ok:
				t.Fatal("mosquitto ended")
			case strings.Contains(line, "should not be run as root"): // as the tests may be
			case strings.Contains(line, "Error") || strings.Contains(line, "Warning"):
				t.Errorf("mosquitto says %q", line)
			case strings.HasSuffix(line, end):
				return
			}
		case <-late:
			t.Fatalf("mosquitto does not say %q", end)
		}
	}
}

// reload returns when what comes from now on is held against the new files:
// Mosquitto has one thread.
func (p *process) reload(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.await(t, "Reloading config.")
}

// stop ends Mosquitto as systemd does. It may be called again.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	for range p.lines { // the end of the log is the end of the process
		continue
	}
	_ = p.cmd.Wait()
}
