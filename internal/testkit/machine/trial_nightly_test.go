//go:build linux && machine && nightly

package machine

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFirstContact founds a federation of five devices with files of their own as a person does, on six clean machines
// that know our repository: it counts the commands, the edits and the time. docs/OPERATIONS.md has what it logs.
func TestFirstContact(t *testing.T) {
	need(t, "apt-ftparchive", "gpg")
	drop, err := debs()
	if err != nil {
		t.Fatalf("making packages: %v\n%s", err, drop)
	}
	debs, err := filepath.Glob(filepath.Join(drop, "old/*.deb"))
	if err != nil || len(debs) != 2 {
		t.Fatalf("%v, %v; want two packages", debs, err)
	}
	r := newRepository(t, drop)
	r.publish(debs...)
	lead := newPerson(t, r, drop)
	devices := make([]*person, 5)
	for i := range devices {
		devices[i] = newPerson(t, r, drop)
		devices[i].Must("systemctl", "disable", "--now", "mosquitto") // that the machines of other tests have
		forward(t, devices[i].Machine, lead.Machine, 1883)
		devices[i].Write("/srv/measured.csv", 0o644, measured(uint64(i)))
	}
	lead.Write("/root/sample.csv", 0o644, measured(0))

	began := time.Now()
	lead.does("apt-get -q update")
	lead.does("apt-get -q -y install coordinator mosquitto")
	lead.does("printf 'listener 1883\\nallow_anonymous true\\n' > /etc/mosquitto/conf.d/lan.conf")
	lead.does("systemctl restart mosquitto")
	lead.does("coordinator init air --from sample.csv --agents 5 --broker tcp://127.0.0.1:1883 " +
		"--dir /etc/coordinator --force")
	config := lead.Must("cat", "/etc/coordinator/agentd.yaml")
	var list strings.Builder
	for i, d := range devices {
		id := fmt.Sprint("station-", i+1)
		d.does("apt-get -q update")
		d.does("apt-get -q -y install agentd")
		d.gets("/etc/agentd/agentd.yaml", config+"\n")
		fmt.Fprintf(&list, "%s %s\n", id, d.does("agentd key new /etc/agentd/agent.key"))
		d.edits("/etc/default/agentd", "AGENTD_ID="+id+"\nAGENTD_DATA_CSV=/srv/measured.csv\n")
		d.does("systemctl start agentd")
	}
	lead.edits("/etc/coordinator/agents.keys", list.String())
	lead.does("systemctl start coordinator")
	lead.Await("the first model with all five", func() bool {
		return strings.Contains(lead.journal("coordinator"), "kind=training accepted=5 selected=5")
	})
	if said := lead.does("coordinator devices list"); strings.Count(said, "100%") != 5 {
		t.Errorf("not all five take part:\n%s", said)
	}
	t.Logf("from apt to the first model of five devices: %d commands and %d edits at the coordinator, %d and %d at "+
		"each device, %.0f s of the machines' time", lead.commands, lead.edited, devices[0].commands, devices[0].edited,
		time.Since(began).Seconds())
	if lead.commands > 10 || lead.edited > 1 || devices[0].commands > 5 || devices[0].edited > 1 {
		t.Error("docs/OPERATIONS.md promises less")
	}
}

// person is somebody at a clean machine whose apt knows the repository.
type person struct {
	*aptSite
	commands, edited int
}

func newPerson(t *testing.T, r *repository, drop string) *person {
	t.Helper()
	p := &person{aptSite: &aptSite{site: &site{Boot(t, drop)}}}
	p.sources(r)
	return p
}

// does counts a command.
func (p *person) does(line string) string {
	p.t.Helper()
	p.commands++
	return p.Shell("cd /root; export DEBIAN_FRONTEND=noninteractive; " + line)
}

// gets counts a file that is copied here: a command.
func (p *person) gets(file, text string) {
	p.t.Helper()
	p.commands++
	p.Write("/root/copied", 0o600, text)
	p.Shell("cp /root/copied " + file)
}

// edits counts an edit: facts about devices, which are appended to a file.
func (p *person) edits(file, facts string) {
	p.t.Helper()
	p.edited++
	p.Write("/root/facts", 0o600, facts)
	p.Shell("cat /root/facts >> " + file)
}

// measured is a device's file.
func measured(seed uint64) string {
	r := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.WriteString("temperature,humidity,power\n")
	for range 300 {
		x, y := r.NormFloat64(), r.NormFloat64()
		fmt.Fprintf(&b, "%.2f,%.1f,%.4g\n", 12+6*x, 60+15*y, 20+8*x-5*y+r.NormFloat64())
	}
	return b.String()
}

// forward has a port of one machine's loopback lead to that of another: machines have no other network.
func forward(t *testing.T, from, to *Machine, port int) {
	t.Helper()
	address := fmt.Sprint("127.0.0.1:", port)
	l, err := within(from, func() (net.Listener, error) { return net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := within(to, func() (net.Conn, error) { return net.Dial("tcp", address) })
				if err != nil {
					return // as if the broker were away
				}
				defer far.Close()
				go func() {
					_, _ = io.Copy(far, near)
					_ = far.Close()
				}()
				_, _ = io.Copy(near, far)
			}()
		}
	}()
}

// within makes a socket in a machine's network. The thread that went there ends with its goroutine.
func within[S any](m *Machine, open func() (S, error)) (s S, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		var there *os.File
		if there, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", m.init)); err != nil {
			return
		}
		defer there.Close()
		if err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err == nil {
			s, err = open()
		}
	}()
	<-done
	return s, err
}
