package budget_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/store"
)

func TestMain(m *testing.M) {
	hosts.UseMemoryTempDir()
	os.Exit(m.Run())
}

// october is the time at which the tests start.
var october = time.Date(2026, time.October, 31, 23, 0, 0, 0, time.UTC)

// device is a device with a budget and one agent.
type device struct {
	t      *testing.T
	dir    string // state folder of the agent
	budget *budget.UplinkBudget
	clock  *time.Time
	log    bytes.Buffer

	part       *budget.BudgetEnforcer
	subscribed bool // whether the agent is subscribed to announcements
	used       budget.UplinkUsageChanged
	left       uint64 // number of remaining bytes, as the round state machine has received it
}

func newDevice(t *testing.T, limit uint64) *device {
	clock := october
	return &device{t: t, dir: t.TempDir(), clock: &clock,
		budget: &budget.UplinkBudget{MonthlyBytes: limit, Meter: new(mqtt.TrafficMeter)}}
}

// connection is a broker connection that records whether the agent is subscribed to announcements.
type connection struct {
	mqtt.Conn
	subscribed *bool
}

func (c connection) Subscribe(mqtt.QoS, ...string) { *c.subscribed = true }
func (c connection) Unsubscribe(...string)         { *c.subscribed = false }

// start starts the agent.
func (d *device) start() {
	d.t.Helper()
	loop, observer := host.NewEventLoop(nil), testkit.Observer(func(e observe.Event) {
		if used, is := e.(budget.UplinkUsageChanged); is {
			d.used = used
		}
	})
	core := &part.AgentCore{Topics: hosts.TopicsOf(d.t, "plant"), Conn: connection{subscribed: &d.subscribed},
		Loop:         loop,
		StateFolder:  state.Folder{Disk: store.LocalDisk, Dir: d.dir, Observer: observer},
		WriteRetrier: &state.WriteRetrier{Loop: loop, Observer: observer},
		Observer:     observer, Logger: slog.New(slog.NewTextHandler(&d.log, nil)),
		HandleRoundEvent: func(e agentround.Event) { d.left = e.(agentround.UplinkBudgetChanged).BytesLeft }}
	var err error
	if d.part, err = budget.New(core, d.budget, true, func() time.Time { return *d.clock },
		func() uint64 { return 1000 }); err != nil {
		d.t.Fatal(err)
	}
	d.subscribed = false
	d.part.Start()
	d.part.BeforeWait()
}

func (d *device) stop() { d.part.Close() }

// spend transfers bytes over the uplink and updates the traffic count.
func (d *device) spend(bytes int) {
	d.budget.Meter.AddTraffic(bytes-bytes/17, 0)
	d.part.BeforeWait()
}

// TestSpent checks that the agent receives no announcements and pauses mixing when the traffic budget is spent, until
// the next month.
func TestSpent(t *testing.T) {
	d := newDevice(t, 20_000_000)
	d.start()
	d.spend(19_990_000)
	if d.part.IsSpent() || d.part.TrainingMustRest() || !d.subscribed || d.left == 0 || d.left > 20_000 {
		t.Errorf("%d bytes left; spent: %v, reads announcements: %v", d.left, d.part.IsSpent(), d.subscribed)
	}
	d.spend(20_000)
	if !d.part.IsSpent() || !d.part.TrainingMustRest() || d.subscribed || d.left != 0 {
		t.Errorf("%d bytes left; spent: %v, reads announcements: %v", d.left, d.part.IsSpent(), d.subscribed)
	}
	*d.clock = october.AddDate(0, 0, 1)
	d.part.BeforeWait()
	if d.part.IsSpent() || d.part.TrainingMustRest() || !d.subscribed || d.used.Month != "2026-11" ||
		d.used.UsedBytes > 1000 {
		t.Errorf("in November: %+v, reads announcements: %v", d.used, d.subscribed)
	}
	d.stop()
}

// TestClockSetBack checks that the traffic budget is not renewed when the clock is set back and then corrected.
func TestClockSetBack(t *testing.T) {
	d := newDevice(t, 20_000_000)
	d.start()
	d.spend(5_000_000)
	for _, at := range []time.Time{time.Unix(0, 0), october, october.AddDate(0, -2, 0), october} {
		*d.clock = at
		d.spend(1_000_000)
		if at.Equal(october) {
			continue
		}
		d.stop() // Check the same after a restart.
		d.start()
	}
	d.spend(0)
	if d.used.Month != "2026-10" || d.used.UsedBytes < 9_000_000 || d.used.UsedBytes > 9_100_000 {
		t.Errorf("told of %+v", d.used)
	}
	if n := strings.Count(d.log.String(), "clock was set back"); n != 3 { // Each start reports this once.
		t.Errorf("it says %d times:\n%s", n, d.log.String())
	}
	d.stop()
}

// TestOutlivesDeath checks the traffic count after a crash: it may be too high by at most one percent, and must never
// be too low. The agent must write the count to disk only rarely.
func TestOutlivesDeath(t *testing.T) {
	const limit, piece = 100_000_000, 50_000
	d := newDevice(t, limit)
	d.start()
	file := filepath.Join(d.dir, state.UplinkBudget.Name)
	writes, last, spent := 0, []byte(nil), 0
	for range 200 {
		d.spend(piece)
		spent += piece
		now, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(now, last) {
			writes, last = writes+1, now
		}
		d.countAfterDeath(file, spent, spent+limit/100+1000)
	}
	if writes > 25 {
		t.Errorf("%d writes for a tenth of the month", writes)
	}
	d.stop()
	d.countAfterDeath(file, spent, spent+1000)
	d.start()
	if d.used.UsedBytes < uint64(spent) || d.used.UsedBytes > uint64(spent)+1000 {
		t.Errorf("in the next life: %+v, want %d", d.used, spent)
	}
	d.stop()
}

// countAfterDeath starts an agent that reads the given file, and checks that the traffic count lies between least and
// most.
func (d *device) countAfterDeath(file string, least, most int) {
	d.t.Helper()
	next := newDevice(d.t, d.budget.MonthlyBytes)
	p, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(filepath.Join(next.dir, state.UplinkBudget.Name), p, 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	next.start()
	if got := next.used.UsedBytes; got < uint64(least) || got > uint64(most) {
		d.t.Errorf("%d bytes after death, want %d to %d", got, least, most)
	}
	next.stop()
}

// TestShared checks that two agents of a device share its traffic budget, and that the saved count does not depend on
// which agent ends last.
func TestShared(t *testing.T) {
	one, two := newDevice(t, 20_000_000), newDevice(t, 0)
	one.budget.Dir = t.TempDir()
	two.budget, two.clock = one.budget, one.clock
	file := filepath.Join(one.budget.Dir, state.UplinkBudget.Name)
	for range 2 { // Check the same after a restart.
		one.start()
		two.start()
		one.spend(4_000_000)
		two.spend(4_000_000)
		before, err := os.ReadFile(file)
		two.stop()
		after, again := os.ReadFile(file)
		if err != nil || again != nil || !bytes.Equal(before, after) {
			t.Errorf("while one goes on the number on disk stays ahead: %v, %v", err, again)
		}
		one.spend(1_000_000)
		one.stop()
	}
	one.start()
	two.start()
	both := []*device{one, two}
	for _, d := range both {
		d.spend(0)
		if d.used.UsedBytes < 18_000_000 || d.used.UsedBytes > 18_001_000 {
			t.Errorf("told of %+v", d.used)
		}
		if entries, err := filepath.Glob(filepath.Join(d.dir, "budget*")); err != nil || len(entries) > 0 {
			t.Errorf("files %q, %v", entries, err)
		}
	}
	one.spend(2_100_000)
	two.spend(0)
	if slices.ContainsFunc(both, func(d *device) bool { return d.subscribed }) {
		t.Error("an agent reads announcements, and nothing is left")
	}
	one.stop()
	two.stop()
}
