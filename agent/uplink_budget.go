package agent

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

const (
	budgetFile    = "budget"
	budgetVersion = 1
)

// month counts calendar months from the year 0.
type month uint32

func monthOf(t time.Time) month { return month(t.Year()*12 + int(t.Month()) - 1) }

func (m month) String() string { return fmt.Sprintf("%04d-%02d", m/12, m%12+1) }

// UplinkBudget bounds what the uplink of a device may carry in a calendar month, as Meter counts it. The agents of the
// device share it: they decline rounds that do not fit.
type UplinkBudget struct {
	MonthlyBytes uint64 // bytes
	Meter        *mqtt.TrafficMeter
	Dir          string // keeps the count, on the disk of the agents

	mu         sync.Mutex
	ledger     *trafficLedger // while there are agents
	agentCount int
}

// addAgent takes up what the disk has of this month, for the first agent.
func (b *UplinkBudget) addAgent(c *Config) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agentCount == 0 {
		b.ledger, err = b.open(c)
	}
	if err == nil {
		b.agentCount++
	}
	return err
}

// removeAgent leaves the exact count to the next life, after the last agent.
func (b *UplinkBudget) removeAgent(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agentCount--; b.agentCount > 0 {
		return nil
	}
	b.ledger.count(now)
	return b.ledger.save(0)
}

// remainingBytes is what the month has left; as much as can be without a budget.
func (b *UplinkBudget) remainingBytes() uint64 {
	if b == nil {
		return math.MaxUint64
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.left()
}

// trafficLedger keeps what the uplink has carried in a calendar month. The number on
// disk runs ahead of the count, and is written again only when the count comes
// near it, since flash wears. After a kill an agent has counted too much, by two
// margins at most, and never too little. The month only goes forward.
type trafficLedger struct {
	limit          uint64 // bytes a month
	saveAheadBytes uint64
	disk           store.Disk
	path           string
	meter          *mqtt.TrafficMeter

	month          month
	used           uint64
	meterTotal     uint64 // the meter's total, up to here in used
	savedUsedBytes uint64
}

// minSaveAheadBytes is more than what goes over a link between two looks at the meter.
const minSaveAheadBytes = 128 << 10

// open takes up what the folder has of this month, and makes sure that it
// can be written.
func (b *UplinkBudget) open(c *Config) (*trafficLedger, error) {
	now, in := c.Now(), *c
	in.Dir = cmp.Or(b.Dir, c.Dir)
	l := &trafficLedger{limit: b.MonthlyBytes, saveAheadBytes: max(b.MonthlyBytes/200, minSaveAheadBytes), disk: c.Disk,
		path:  filepath.Join(in.Dir, budgetFile),
		meter: b.Meter, meterTotal: b.Meter.Total(), month: monthOf(now)}
	err := in.readStateRecord(budgetFile, budgetVersion, 64, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("%d bytes, want 12", len(b))
		}
		l.month, l.used = month(littleEndian.Uint32(b)), littleEndian.Uint64(b[4:])
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.count(now)
	return l, l.save(2 * l.saveAheadBytes)
}

// count takes in what the meter has counted, and the beginning of a month. It
// reports whether the disk must be told.
func (l *trafficLedger) count(now time.Time) (save bool) {
	total := l.meter.Total()
	more := total - l.meterTotal
	l.meterTotal = total
	if m := monthOf(now); m > l.month {
		l.month, l.used, save = m, 0, true
	}
	l.used += more
	return save || l.used+l.saveAheadBytes > l.savedUsedBytes
}

// save writes a number that is so far ahead.
func (l *trafficLedger) save(ahead uint64) error {
	b := littleEndian.AppendUint32(nil, uint32(l.month))
	b = littleEndian.AppendUint64(b, l.used+ahead)
	if err := l.disk.SaveRecord(l.path, budgetVersion, b); err != nil {
		return err
	}
	l.savedUsedBytes = l.used + ahead
	return nil
}

func (l *trafficLedger) left() uint64 { return l.limit - min(l.limit, l.used) }

// isBudgetSpent reports whether nothing is left. The agent then does not read the
// announcements, which may have models in them, until the next month.
func (a *Agent) isBudgetSpent() bool { return a.cfg.Budget.remainingBytes() == 0 }

// updateBudget keeps the budget's books, if there is a budget.
func (a *Agent) updateBudget() {
	b := a.cfg.Budget
	if b == nil {
		return
	}
	b.mu.Lock()
	l, now := b.ledger, a.cfg.Now()
	back := monthOf(now) < l.month && !a.clockSetBackReported
	var err error
	counts := l.count(now)
	if counts {
		err = l.save(2 * l.saveAheadBytes)
	}
	left, margin := l.left(), l.saveAheadBytes
	event := BudgetUsed{Month: l.month.String(), Used: l.used, Limit: l.limit}
	b.mu.Unlock()
	if back {
		a.clockSetBackReported = true
		a.cfg.Logger.Warn("the clock was set back: bytes go on counting for the later month; if that was the wrong "+
			"one, stop the agent and remove the file",
			"clock", monthOf(now), "counted_for", event.Month, "file", l.path)
	}
	if counts {
		a.reportWriteResult("save the count of bytes", err)
	}
	a.stepRoundMachine(round.UplinkBudgetChanged{BytesLeft: left})
	a.updateBlockRest()
	if spent := left == 0; spent != a.budgetSpent {
		if a.budgetSpent = spent; spent {
			a.conn.Unsubscribe(a.cfg.Topics.Announcement())
		} else {
			a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Announcement())
		}
	}
	event.RoundEstimate = a.machine.EstimateRoundBytes()
	last := a.budgetReported
	if event.Month != last.Month || event.RoundEstimate != last.RoundEstimate || event.Used-last.Used >= margin/8 {
		a.budgetReported = event
		a.cfg.Observer.Observe(event)
	}
}

// leaveBudget ends the agent's part in the budget.
func (a *Agent) leaveBudget() {
	if a.cfg.Budget == nil {
		return
	}
	if err := a.cfg.Budget.removeAgent(a.cfg.Now()); err != nil {
		a.cfg.Logger.Warn("cannot save the count of bytes: the next start counts some too many", "err", err)
	}
}

var (
	budgetBytes = observe.OptionalGauge("budget_bytes",
		"Bytes that the uplink may carry in a calendar month, if that is bounded.")
	budgetUsedBytes = observe.OptionalGauge("budget_used_bytes",
		"Bytes that the uplink has carried in this calendar month, as an operator would count them.")
	roundEstimateBytes = observe.OptionalGauge("round_estimate_bytes",
		"Bytes that the announced round, or the next one, will move over the uplink, as estimated before joining "+
			"it; only with a budget.")
)

// BudgetUsed: the count of the bytes that the uplink has carried in this month has changed.
type BudgetUsed struct {
	Month         string // such as 2026-03
	Used, Limit   uint64 // bytes
	RoundEstimate uint64 // bytes of the announced round, or of the next round
}

// Describe implements observe.Event. It resolves the condition of round.UplinkBudgetTooSmall.
func (e BudgetUsed) Describe(d *observe.Description) {
	d.Set(budgetBytes, float64(e.Limit))
	d.Set(budgetUsedBytes, float64(e.Used))
	d.Set(roundEstimateBytes, float64(e.RoundEstimate))
	if e.Limit-min(e.Limit, e.Used) >= e.RoundEstimate {
		d.Resolve(round.UplinkBudgetCondition)
	}
}
