package e2e

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// vandal deletes a chunk of the second round's base model from the broker as soon as the round is announced. vandal
// also records the blob hashes in all announcements.
type vandal struct {
	conn     mqtt.Conn
	mu       sync.Mutex
	named    map[wire.AnnouncementPosition][]string // blob hashes in each announcement
	finished map[wire.RunID]bool
	gone     bool
}

func newVandal(t *testing.T, url string) *vandal {
	t.Helper()
	conn, err := mqtt.Dial(t.Context(),
		mqtt.Options{URL: url, ClientID: "vandal", MailboxMessages: 4096, MailboxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	v := &vandal{conn: conn, named: map[wire.AnnouncementPosition][]string{}, finished: map[wire.RunID]bool{}}
	conn.Subscribe(mqtt.AtLeastOnce, "fl/v1/e2e/round")
	go func() {
		for e := range conn.Events() {
			if m, ok := e.(mqtt.MessageReceived); ok && len(m.Payload) > 0 {
				v.hear(m.Payload)
			}
		}
	}()
	return v
}

func (v *vandal) hear(payload []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	e, err := wire.ParseEnvelope(payload)
	if err != nil {
		return
	}
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		return
	}
	o := wire.AnnouncementPositionOf(e.Header, &a)
	if _, again := v.named[o]; again {
		return
	}
	v.named[o] = []string{a.Task.Hash.TopicLevel(), a.BaseModel.Hash.TopicLevel()}
	v.finished[e.Run] = a.Phase == wire.PhaseFinished
	if a.Phase == wire.PhaseOpen && e.Round == 2 && !v.gone {
		v.gone = true
		_ = v.conn.Publish(mqtt.Message{Topic: "fl/v1/e2e/m/" + a.BaseModel.Hash.TopicLevel() + "/16",
			QoS:      mqtt.AtLeastOnce,
			Retained: true})
	}
}

// mayStay returns the blob hashes in the announcements of the last two rounds of the newest run. The broker may retain
// these blobs.
func (v *vandal) mayStay() map[string]bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	orders := slices.SortedFunc(maps.Keys(v.named), wire.AnnouncementPosition.Compare)
	newest := orders[len(orders)-1]
	may := map[string]bool{}
	for _, o := range orders {
		if o.Run == newest.Run && o.Round+1 >= newest.Round {
			for _, hash := range v.named[o] {
				may[hash] = true
			}
		}
	}
	return may
}

// ended returns the number of runs whose end the coordinator has announced.
func (v *vandal) ended() (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, is := range v.finished {
		if is {
			n++
		}
	}
	return n
}

// TestBlobsAtBroker deletes a chunk of a model from the broker while an agent downloads it, and kills the coordinator.
// The coordinator must publish missing chunks again, and must delete blobs that no round needs.
func TestBlobsAtBroker(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	list := f.AddAgent(t, "one", plane(20))
	// The size of the model is 1 MB, in 17 chunks.
	f.ConfigureCoordinator(t,
		"{name: plane, features: [a, b], target: y, standardize: false, model: {kind: mlp, hidden: [500, "+
			"500]}, steps: {budget: 100ms, min: 1, max: 1}}",
		list,
		`{participants: 1, quorum: 1, rounds: 3, deadline: 5m, gather: {target: 1, minimum: 1, within: 20s, spread: 10ms}}`)
	v := newVandal(t, f.Broker)
	lead := f.Daemon(t, "coordinator", "coordinator")
	slow := "tcp://" + brokers.NewSlowProxy(t, strings.TrimPrefix(f.Broker, "tcp://"), 500_000)
	one := f.Daemon(t, "agentd", "one", "--set", "broker.url="+slow)
	lead.AwaitFor(t, 5*testkit.Patience, "run finished version=3")
	testkit.Until(t, "the end is announced", func() bool { return v.ended() == 1 })
	v.wantTidy(t, f)
	lead.Kill()

	again := f.Daemon(t, "coordinator", "coordinator", "--new-run", "--set", "task.batch_size=16", "--set",
		"round.rounds=2")
	again.AwaitFor(t, 2*testkit.Patience, "run finished version=2")
	testkit.Until(t, "the second end is announced", func() bool { return v.ended() == 2 })
	v.wantTidy(t, f)
	one.Stop(t, syscall.SIGTERM, 0)
	again.Stop(t, syscall.SIGTERM, 0)
}

// wantTidy waits until the broker retains only the blobs of the last two rounds.
func (v *vandal) wantTidy(t *testing.T, f *federation) {
	t.Helper()
	testkit.Until(t, "only what is named is retained", func() bool {
		may, n := v.mayStay(), 0
		for topic := range retained(t, f.Broker) {
			if m := ofBlob.FindStringSubmatch(topic); m != nil {
				n++
				if !may[m[1]] {
					return false
				}
			}
		}
		return n > 0
	})
}

var ofBlob = regexp.MustCompile(`^fl/v1/e2e/m/(\w+)/`)
