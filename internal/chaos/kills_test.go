//go:build chaos

package chaos

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/store"
)

// tensors returns a digest of the parameters in a model file. The digest excludes the metadata, which may contain times
// and paths.
func tensors(t *testing.T, file []byte) string {
	t.Helper()
	all, _, err := store.DecodeSafetensors(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	for _, x := range all {
		sum.Write([]byte(x.Name))
		sum.Write(x.Data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// sameAsUndisturbed checks that the newest model is equal to the model of a second federation with the same layout but
// without faults.
func (p *plant) sameAsUndisturbed(l layout) (version uint64) {
	p.t.Helper()
	version = p.version()
	got := p.model(version)
	calm := newPlant(p.t, l)
	calm.start()
	calm.await(version, 5*time.Minute)
	calm.stop()
	if want := calm.model(version); got != want {
		p.t.Errorf("model %d is %s, that of an undisturbed federation %s", version, got, want)
	}
	return version
}

// checkHistory checks that the history contains every round once, in order, with the updates of all agents.
func (p *plant) checkHistory() {
	p.t.Helper()
	lines := p.history()
	for i, l := range lines {
		if i == 0 && l.Round != 1 {
			p.t.Errorf("the history begins with round %d", l.Round)
		}
		if i > 0 && l.Round != lines[i-1].Round+1 {
			p.t.Errorf("round %d follows round %d in the history", l.Round, lines[i-1].Round)
		}
		if l.Outcome != "abandoned" && l.Accepted != len(p.ids) {
			p.t.Errorf("round %d closed with %d of %d updates", l.Round, l.Accepted, len(p.ids))
		}
		if l.Outcome != "abandoned" && l.Kind == "training" && l.Risk == nil {
			p.t.Errorf("round %d has no risk", l.Round)
		}
	}
}

func TestKills(t *testing.T) {
	for _, c := range []struct {
		name, what    string
		hidden, kills int
		most          time.Duration // maximum time until the process is killed
	}{
		{"kill_coordinator", "coordinator `kill -9`, model of 12 bytes", 0, 40, 300 * time.Millisecond},
		{"kill_coordinator_large", "coordinator `kill -9`, model of 1 MB", 65_000, 10, 3 * time.Second},
	} {
		results.run(t, fault{c.name, c.what,
			"bit-equal; each round once, with all updates",
			func(t *testing.T) string {
				l := layout{agents: 4, hidden: c.hidden}
				p := newPlant(t, l)
				p.start()
				p.await(1, time.Minute)
				var after []time.Duration
				for range c.kills {
					pause(p.between(0, c.most))
					p.lead.Kill()
					p.startLead()
					after = append(after, p.goOn(1, 2*time.Minute))
				}
				p.goOn(2, time.Minute)
				p.stop()
				p.checkHistory()
				v := p.sameAsUndisturbed(l)
				return fmt.Sprintf("%d kills, %d rounds: bit-equal; next round after %s (median), %s (longest)",
					c.kills, v, median(after), slices.Max(after).Round(100*time.Millisecond))
			}})
	}
	results.run(t, fault{"kill_agents", "agent `kill -9`",
		"its update is used once in each round; bit-equal, no round abandoned", func(t *testing.T) string {
			l := layout{agents: 4}
			p := newPlant(t, l)
			p.start()
			p.await(1, time.Minute)
			var after []time.Duration
			const kills = 35
			for range kills {
				pause(p.between(0, 200*time.Millisecond))
				id := p.ids[p.rng.IntN(len(p.ids))]
				p.agents[id].Kill()
				p.startAgent(id)
				after = append(after, p.goOn(2, time.Minute))
			}
			p.stop()
			p.checkHistory()
			if n := p.abandoned(); n > 0 {
				t.Errorf("%d rounds were abandoned", n)
			}
			v := p.sameAsUndisturbed(l)
			return fmt.Sprintf("%d kills, %d rounds: bit-equal; two more rounds after %s (median)", kills, v,
				median(after))
		}})
}

// median returns the median duration, rounded for a table.
func median(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2].Round(10 * time.Millisecond)
}

func TestBroker(t *testing.T) {
	for _, c := range []struct{ name, what, conf string }{
		{"restart_broker", "Mosquitto `kill -9`, down 0.4–3.5 s, without persistence", ""},
		{"restart_broker_kept", "Mosquitto `kill -9`, down 0.4–3.5 s, with persistence",
			"persistence true\npersistence_location /var/lib/mosquitto/\nautosave_interval 1\n"},
	} {
		results.run(t, fault{c.name, c.what, "rounds continue by themselves; none is abandoned; bit-equal",
			func(t *testing.T) string {
				l := layout{agents: 4, conf: c.conf}
				p := newPlant(t, l)
				p.start()
				p.await(1, time.Minute)
				var after []time.Duration
				const restarts = 10
				for range restarts {
					pause(p.between(0, 300*time.Millisecond))
					p.broker.Kill()
					pause(p.between(400*time.Millisecond, 3500*time.Millisecond))
					p.broker.Start(t)
					after = append(after, p.goOn(2, 2*time.Minute))
				}
				p.stop()
				p.checkHistory()
				if n := p.abandoned(); n > 0 {
					t.Errorf("%d rounds were abandoned", n)
				}
				p.sameAsUndisturbed(layout{agents: 4})
				return fmt.Sprintf("%d restarts: bit-equal; two more rounds after %s (median), %s (longest)", restarts,
					median(after), slices.Max(after).Round(100*time.Millisecond))
			}})
	}
	results.run(t, fault{"slow_upload", "coordinator `kill -9` while updates of 264 kB arrive at 100 kB/s",
		"the round continues with the received parts", func(t *testing.T) string {
			l := layout{agents: 3, hidden: 16_500, deadline: 2 * time.Minute}
			p := newPlant(t, l)
			slow := "tcp://" + brokers.NewSlowProxy(t, p.broker.Address, 300_000)
			for _, id := range p.ids {
				p.extra[id] = []string{"--set", "broker.url=" + slow}
			}
			p.start()
			p.await(1, 2*time.Minute)
			undisturbed := p.goOn(1, 2*time.Minute)
			var after []time.Duration
			for range 6 {
				p.goOn(1, 2*time.Minute)
				pause(p.between(undisturbed/2, undisturbed*9/10))
				p.lead.Kill()
				p.startLead()
				after = append(after, p.goOn(1, 2*time.Minute))
			}
			p.stop()
			p.checkHistory()
			return fmt.Sprintf("6 kills: closed after %s (median), %s (longest)", median(after),
				slices.Max(after).Round(100*time.Millisecond))
		}})
}
