//go:build chaos

package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/launch"
)

// TestSoak injects a fault every few seconds for a configured duration. One device sends false data from the beginning.
func TestSoak(t *testing.T) {
	results.run(t, fault{"soak", "all faults at random, for `SOAK` (5m by default), with one liar",
		"rounds continue after each fault; the coordinator uses less than 128 MB and leaks no file; R² above 0.9",
		func(t *testing.T) string {
			p := newPlant(t, layout{agents: 6, quorum: 3, deadline: 10 * time.Second, liar: true})
			p.small("state-agent-5", 128)
			p.lie("--lie", "1:constant:1e30")
			p.start()
			p.await(5, 2*time.Minute)
			faults := p.faults()
			done := make([]int, len(faults))
			files := p.openFiles()
			end := time.Now().Add(*soak)
			longest := time.Duration(0)
			for time.Now().Before(end) {
				i := p.rng.IntN(len(faults))
				faults[i].disturbance()
				done[i]++
				longest = max(longest, p.goOn(3, 3*time.Minute))
			}
			if now := p.openFiles(); now > files+20 {
				t.Errorf("the coordinator has %d open files, %d at the beginning", now, files)
			}
			if bytes := p.lead.Memory(p.t, "VmRSS"); bytes > 128e6 {
				t.Errorf("the coordinator holds %.0f MB", bytes/1e6)
			}
			if r2 := p.r2(); !(r2 > 0.9) {
				t.Errorf("R² is %v", r2)
			}
			tried := 0
			for i, f := range faults {
				t.Logf("%d %s", done[i], f.name)
				if f.name != quiet {
					tried += done[i]
				}
			}
			return fmt.Sprintf("%d faults, %d rounds, R² %.3f; three more rounds after each fault within %s", tried,
				p.version(), p.r2(), longest.Round(100*time.Millisecond))
		}})
}

const quiet = "quiet times" // name of the disturbance that injects no fault

// disturbance is one kind of fault that the soak test injects.
type disturbance struct {
	name        string
	disturbance func()
}

func (p *plant) faults() []disturbance {
	return []disturbance{
		{"coordinator kills", func() {
			p.lead.Kill()
			pause(p.between(0, 2*time.Second))
			p.startLead()
		}},
		{"agent kills", func() {
			id := p.ids[p.rng.IntN(len(p.ids))]
			p.agents[id].Kill()
			pause(p.between(0, 2*time.Second))
			p.startAgent(id)
		}},
		{"broker kills", func() {
			p.broker.Kill()
			pause(p.between(0, 2*time.Second))
			p.broker.Start(p.t)
		}},
		{"full disks of an agent", func() {
			free := p.fill("state-agent-5")
			p.goOn(2, time.Minute)
			free()
		}},
		{"power cuts of everything", func() {
			p.lead.Kill()
			p.broker.Kill()
			for _, id := range p.ids {
				p.agents[id].Kill()
			}
			p.broker.Start(p.t)
			p.start()
		}},
		{quiet, func() { pause(p.between(0, 3*time.Second)) }},
	}
}

// openFiles returns the number of open files of the coordinator.
func (p *plant) openFiles() int {
	p.t.Helper()
	n := launch.OpenFiles(p.lead.Cmd.Process.Pid)
	if n == 0 {
		p.t.Fatal("the coordinator has no open files")
	}
	return n
}
