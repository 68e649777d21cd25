//go:build linux && machine && nightly

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/packaging/cluster"
)

// TestNATSService runs the systemd unit of NATS that we ship, with its sandbox. Three servers run on one machine.
// systemd reloads one of them, restarts it after a kill, and stops it. The test changes only the addresses and folders
// in nats.conf.
func TestNATSService(t *testing.T) {
	drop := t.TempDir()
	program, err := os.ReadFile(brokers.NATSServer(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(drop, "nats-server"), program, 0o755) //nolint:gosec // a program
	}
	if err != nil {
		t.Fatal(err)
	}
	m := Boot(t, drop)
	m.Shell("install -m 755 -t /usr/local/bin " + DropDir + "/nats-server; useradd --system nats; " +
		"printf '127.0.0.%s n%s.example\\n' 1 1 2 2 3 3 >>/etc/hosts")
	authority := acltest.NewAuthority(t)
	for i := 1; i <= 3; i++ {
		name, own := fmt.Sprintf("nats-server%d", i), fmt.Sprintf("127.0.0.%d", i)
		folder := fmt.Sprintf("/etc/nats%d", i)
		certificate, key := acltest.PEMOf(t, authority.Issue(t, fmt.Sprint("n", i), fmt.Sprintf("n%d.example", i)))
		m.Write(folder+"/ca.crt", 0o644, string(authority.PEM()))
		m.Write(folder+"/server.crt", 0o644, string(certificate))
		m.Write(folder+"/server.key", 0o600, string(key))
		m.Write(folder+"/nats.conf", 0o644, strings.NewReplacer("server_name: n1", fmt.Sprint("server_name: n", i),
			"0.0.0.0", own, "127.0.0.1:8222", own+":8222", "/etc/nats", folder, "/var/lib/nats",
			fmt.Sprint("/var/lib/nats", i)).Replace(string(cluster.Conf)))
		m.Must("chown", "nats", folder+"/server.key")
		m.Write("/etc/systemd/system/"+name+".service", 0o644, strings.NewReplacer("/etc/nats", folder,
			"StateDirectory=nats", fmt.Sprint("StateDirectory=nats", i)).Replace(string(cluster.Unit)))
	}
	m.Must("systemctl", "daemon-reload")
	m.Must("systemctl", "start", "nats-server1", "nats-server2", "nats-server3")
	healthy := func() bool {
		_, page := m.Run("bash", "-c",
			`exec 3<>/dev/tcp/127.0.0.1/8222 && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && cat <&3`)
		return strings.Contains(page, `{"status":"ok"}`)
	}
	m.Await("the server is healthy", healthy)
	property := func(name string) string {
		return m.Must("systemctl", "show", "--value", "--property="+name, "nats-server1")
	}
	first := property("MainPID")
	m.Must("systemctl", "reload", "nats-server1")
	journal := func() string { return m.Must("journalctl", "--no-pager", "--unit=nats-server1") }
	m.Await("it has reloaded", func() bool { return strings.Contains(journal(), "Reloaded server configuration") })
	if property("MainPID") != first {
		t.Error("a reload is a restart")
	}
	m.Must("systemctl", "kill", "--signal=KILL", "nats-server1")
	m.Await("systemd starts it again", func() bool {
		return property("MainPID") != first && property("NRestarts") == "1"
	})
	m.Await("it is healthy again", healthy)
	m.Must("systemctl", "stop", "nats-server1")
	text := journal()
	if property("Result") != "success" || !strings.Contains(text, "ame duck mode") ||
		!strings.Contains(text, "Server Exiting") {
		t.Errorf("it ends with %s:\n%s", property("Result"), text)
	}
}
