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

// TestFirstContact sets up a federation of five devices on six clean machines whose apt knows our repository. It counts
// the commands and the edits, and measures the time. docs/howto/enrol-devices.md quotes these numbers.
func TestFirstContact(t *testing.T) {
	skipWithoutPrograms(t, "apt-ftparchive", "gpg")
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
		// the machines of other tests need mosquitto, so it is installed
		devices[i].Must("systemctl", "disable", "--now", "mosquitto")
		forward(t, devices[i].Machine, lead.Machine, 8883)
		forward(t, devices[i].Machine, lead.Machine, 8884)
		devices[i].Write("/srv/measured.csv", 0o644, measured(uint64(i)))
	}
	lead.Write("/root/sample.csv", 0o644, measured(0))

	began := time.Now()
	lead.does("apt-get -q update && apt-get -q -y install coordinator mosquitto")
	lead.does("coordinator init air --from sample.csv --agents 5 --broker mqtts://127.0.0.1:8883 " +
		"--join https://127.0.0.1:8884 --dir /etc/coordinator --force")
	lead.does("cp -r /etc/coordinator/mosquitto/. /etc/mosquitto/ && chown -R mosquitto /etc/mosquitto/certs")
	lead.does("systemctl restart mosquitto")
	lead.does("systemctl enable --now fedmesh-acl.path")
	lead.does("systemctl start coordinator")
	_, token, _ := strings.Cut(lead.does("coordinator enrol --open"), "--token ")
	token = strings.Fields(token)[0]
	var last time.Time
	for i, d := range devices {
		last = time.Now()
		d.does("apt-get -q update && apt-get -q -y install agentd")
		d.does(fmt.Sprintf("agentd join https://127.0.0.1:8884 --token %s --id station-%d "+
			"--set data.csv=/srv/measured.csv", token, i+1))
	}
	lead.Await("a model with all five", func() bool {
		return strings.Contains(lead.journal("coordinator"), "kind=training accepted=5 selected=5")
	})
	took, ofLast := time.Since(began), time.Since(last)
	if said := lead.does("coordinator devices list"); strings.Count(said, "100%") != 5 {
		t.Errorf("not all five take part:\n%s", said)
	}
	t.Logf("from apt to the first model of five devices: %d commands and %d edits at the coordinator, %d and %d at "+
		"each device; %.0f s of the machines' time, %.0f s of the last device's", lead.commands, lead.edited,
		devices[0].commands, devices[0].edited, took.Seconds(), ofLast.Seconds())
	if lead.commands > 10 || lead.edited > 0 || devices[0].commands > 2 || devices[0].edited > 0 {
		t.Error("docs/howto/enrol-devices.md promises less")
	}
}

// person represents a user of a clean machine whose apt knows our repository.
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

// does runs a command line as the user would, and counts it.
func (p *person) does(line string) string {
	p.t.Helper()
	p.commands++
	return p.Shell("cd /root; export DEBIAN_FRONTEND=noninteractive; " + line)
}

// measured returns a device's data as CSV.
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

// forward forwards a loopback port of one machine to the same port of another machine, because the machines have no
// other network.
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
					return // the client sees an unavailable broker
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

// within calls open in the network namespace of a machine. It locks the goroutine to an OS thread, and the thread ends
// together with the goroutine.
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
