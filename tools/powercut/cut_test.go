package powercut

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

var (
	cuts = flag.Int("cuts", 10, "power cuts")
	seed = flag.Uint64("seed", 1, "of who loses power when")
)

var programs testkit.Programs

func TestMain(m *testing.M) { os.Exit(testkit.Main(m, "../..", &programs)) }

// agents is the number of agents. All agents participate in every round, so the federation would stop if one agent lost
// its update.
const agents = 3

// update identifies an update that an agent has written durably to its disk.
type update struct {
	agent  wire.AgentID
	run    wire.RunID
	round  wire.RoundID
	digest wire.Digest
}

// book records the updates that agents have synced to disk, and the content of all announcements.
type book struct {
	mu            sync.Mutex
	t             *testing.T
	updates       map[update]bool
	models        map[string]wire.Digest                // hash of each announced model, by run and version
	outcomes      map[wire.RoundID]map[wire.Digest]bool // announced outcomes; a round must have only one
	told          map[wire.RoundID]wire.RoundOutcome
	newest        wire.RoundID // newest round that was announced
	announcements int
}

// synced records an update that an agent has synced to disk. The file starts with the header of store.RecordSlots,
// followed by the header that is defined in agent/state_files.go.
func (b *book) synced(agent wire.AgentID, name string, content []byte) {
	const slot, head = 24, 28
	if name != "update.a" || len(content) < slot+head {
		return
	}
	body := content[slot:]
	n := int(binary.LittleEndian.Uint32(body[head-4:]))
	m, err := wire.DecodeUpdate(body[head : head+n])
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.t.Errorf("a synced update of %s: %v", agent, err)
		return
	}
	b.updates[update{agent, wire.RunID(binary.LittleEndian.Uint64(body[8:])),
		wire.RoundID(binary.LittleEndian.Uint64(body[16:])), m.PayloadManifest.Hash}] = true
}

// hear records the content of an announcement.
func (b *book) hear(payload []byte) {
	e, err := wire.ParseEnvelope(payload)
	if err != nil {
		b.t.Error(err)
		return
	}
	a, err := wire.DecodeAnnouncement(e.Body)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		b.t.Error(err)
		return
	}
	b.announcements++
	b.newest = max(b.newest, e.Round)
	if a.Kind == wire.KindTraining {
		key := fmt.Sprintf("run %d version %d", e.Run, a.BaseModelVersion)
		if before, is := b.models[key]; is && before != a.BaseModel.Hash {
			b.t.Errorf("%s was announced as %x and as %x", key, before[:4], a.BaseModel.Hash[:4])
		}
		b.models[key] = a.BaseModel.Hash
	}
	if a.LastRoundOutcome.Inline == nil {
		return
	}
	o, err := wire.DecodeRoundOutcome(a.LastRoundOutcome.Inline)
	if err != nil || o.Round != a.LastEndedRound {
		b.t.Errorf("the outcome of round %d: of %d, %v", a.LastEndedRound, o.Round, err)
		return
	}
	if b.outcomes[o.Round] == nil {
		b.outcomes[o.Round] = map[wire.Digest]bool{}
	}
	b.outcomes[o.Round][a.LastRoundOutcome.Hash] = true
	b.told[o.Round] = o
}

// reached reports whether an announcement of round r was recorded.
func (b *book) reached(r wire.RoundID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest >= r
}

func (b *book) now() wire.RoundID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest
}

// check compares the announced outcomes of all rounds with the synced updates.
func (b *book) check() (folded, abandoned int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r, all := range b.outcomes {
		if len(all) != 1 {
			b.t.Errorf("round %d ended in %d ways", r, len(all))
		}
	}
	for u := range b.updates {
		if u.round >= b.newest {
			continue // The round has not ended yet.
		}
		o, is := b.told[u.round]
		fate := o.FateOf(wire.UpdateTagOf(u.run, u.round, u.agent, u.digest))
		switch {
		case is && o.IsAbandoned:
			abandoned++
		case is && fate != wire.FateMissedRoundEnd:
			folded++
		default:
			b.t.Errorf("the update of %s for round %d was synced and is neither folded nor told left out: told %v, %s",
				u.agent, u.round, is, fate)
		}
	}
	return folded, abandoned
}

// federation is a federation of the compiled programs whose disks can lose power.
type federation struct {
	*testkit.Federation
	t     *testing.T
	disks map[string]*Disk // disk of each program, by program name or agent id
	runs  map[string]*testkit.Process
}

const lead = "coordinator"

func newFederation(t *testing.T, b *book, model string) *federation {
	t.Helper()
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	m.Start(t)
	f := &federation{testkit.NewFederation(t, programs, "cuts", "tcp://"+m.Address), t, map[string]*Disk{},
		map[string]*testkit.Process{}}
	b.watch(t, "tcp://"+m.Address)
	var list strings.Builder
	for i := range agents {
		id := fmt.Sprintf("agent-%d", i)
		list.WriteString(f.AddAgent(t, id, testkit.NoisyPlane(40+i, i)))
		f.mount(id, "state-"+id, func(name string, content []byte) { b.synced(wire.AgentID(id), name, content) })
	}
	f.mount(lead, "state", func(string, []byte) {})
	// The number of local steps depends on the clock. Therefore, if an update is lost and computed again, the new
	// update differs from the lost update.
	f.ConfigureCoordinator(t, `{name: plane, features: [a, b], target: y, batch_size: 0, steps: {budget: 1ms, min: 1, max: 200}, `+
		`step_size: {constant: 0.001}, model: {`+model+`}}`, list.String(), fmt.Sprintf(
		`{participants: %d, quorum: %d, rounds: 0, deadline: 2m, invite_every: 200ms, `+
			`gather: {target: %d, minimum: %d, within: 1s, spread: 10ms}}`, agents, agents, agents, agents))
	return f
}

func (f *federation) mount(who, folder string, synced func(string, []byte)) {
	f.t.Helper()
	if err := os.Mkdir(f.Path(folder), 0o700); err != nil {
		f.t.Fatal(err)
	}
	d, err := Mount(f.Path(folder), synced)
	if err != nil {
		f.t.Fatal(err)
	}
	f.disks[who] = d
	f.t.Cleanup(func() {
		if p := f.runs[who]; p != nil {
			p.Kill()
		}
		if err := d.Unmount(); err != nil {
			f.t.Error(err)
		}
	})
}

func (f *federation) start(who string) {
	f.t.Helper()
	program := "agentd"
	if who == lead {
		program = lead
	}
	f.runs[who] = f.Daemon(f.t, program, who)
}

// cut simulates a power failure of several programs at the same time.
func (f *federation) cut(victims []string) {
	f.t.Helper()
	for _, who := range victims {
		if p := f.runs[who]; p.Cmd.Process.Kill() != nil {
			f.t.Fatalf("%s had ended by itself:\n%s", who, p.Log())
		}
	}
	for _, who := range victims {
		<-f.runs[who].Ended
		if err := f.disks[who].Cut(); err != nil {
			f.t.Fatal(err)
		}
	}
	for _, who := range victims {
		f.start(who)
	}
}

// watch records all announcements that the coordinator publishes.
func (b *book) watch(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := mqtt.Dial(ctx, mqtt.Options{URL: url, ClientID: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	topics, err := mqtt.NewTopics("", "cuts")
	if err != nil {
		t.Fatal(err)
	}
	s.Subscribe(mqtt.AtMostOnce, topics.Announcement())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range s.Events() {
			if m, is := e.(mqtt.MessageReceived); is && len(m.Payload) > 0 {
				b.hear(m.Payload)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = s.Close() // ignore the error: the test has ended
		<-done
	})
}

// TestCuts cuts the power of the coordinator, of agents, or of all of them at random times. A model version must never
// be announced with two different contents. Every update that was synced to disk must be aggregated or reported as left
// out. Training must continue. Small models are stored in the announcement and the journal, and large models only in a
// file, so the test runs with both.
func TestCuts(t *testing.T) {
	needsFuse(t)
	for name, model := range map[string]string{"inline": "kind: linear", "in chunks": "kind: mlp, hidden: [4000]"} {
		t.Run(name, func(t *testing.T) { cutAll(t, model) })
	}
}

func cutAll(t *testing.T, model string) {
	b := &book{t: t, updates: map[update]bool{}, models: map[string]wire.Digest{},
		outcomes: map[wire.RoundID]map[wire.Digest]bool{}, told: map[wire.RoundID]wire.RoundOutcome{}}
	f := newFederation(t, b, model)
	all := []string{lead}
	f.start(lead)
	for i := range agents {
		all = append(all, fmt.Sprintf("agent-%d", i))
		f.start(all[i+1])
	}
	testkit.Until(t, "the third round", func() bool { return b.reached(3) })
	rng := rand.New(rand.NewPCG(*seed, 0))
	for n := range *cuts {
		<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond) // wait for a random time before the cut
		victims := []string{lead}
		switch rng.IntN(3) {
		case 0:
			victims = all
		case 1:
			victims = slices.Clone(all[1:])
			rng.Shuffle(agents, func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
			victims = victims[:1+rng.IntN(agents)]
		}
		f.cut(victims)
		if n%5 == 4 || n == *cuts-1 {
			from := b.now()
			testkit.Until(t, fmt.Sprintf("two more rounds after cut %d (seed %d)", n+1, *seed),
				func() bool { return b.reached(from + 2) })
			b.check()
			if t.Failed() {
				t.Fatalf("after cut %d (seed %d)", n+1, *seed)
			}
		}
	}
	folded, abandoned := b.check()
	t.Logf("%d cuts, %d rounds, %d announcements, %d models; synced updates: %d folded or left out, %d of abandoned "+
		"rounds", *cuts, b.newest, b.announcements, len(b.models), folded, abandoned)
	if folded == 0 {
		t.Error("no synced update was folded")
	}
}
