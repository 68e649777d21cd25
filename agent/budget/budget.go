// Package budget limits the bytes that a device transfers over its uplink per calendar month. The agent declines rounds
// that exceed the budget and, after the budget is spent, ignores announcements until the next month.
package budget

import (
	"math"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
)

// UplinkBudget is the monthly traffic budget of a device. All agents of the device share it.
type UplinkBudget struct {
	MonthlyBytes uint64
	Meter        *mqtt.TrafficMeter // counter of the bytes on the uplink
	// Dir is the folder on the agents' disk where the byte count is saved. Empty means the state folder of the first
	// agent.
	Dir string

	mu         sync.Mutex
	ledger     *trafficLedger // bytes used in the current month; nil if no agent is registered
	agentCount int
}

// addAgent registers an agent. For the first agent it loads the saved byte count of the current month.
func (b *UplinkBudget) addAgent(folder state.Folder, now time.Time) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agentCount == 0 {
		b.ledger, err = b.openLedger(folder, now)
	}
	if err == nil {
		b.agentCount++
	}
	return err
}

// removeAgent unregisters an agent. After the last agent it saves the exact count.
func (b *UplinkBudget) removeAgent(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agentCount--; b.agentCount > 0 {
		return nil
	}
	b.ledger.countNewBytes(now)
	return b.ledger.save(0)
}

// BudgetEnforcer is the part of an agent that enforces the monthly uplink budget.
type BudgetEnforcer struct {
	core               *part.AgentCore
	budget             *UplinkBudget // shared budget of the device; nil means no limit
	mixesOverUplink    bool          // true if neighbours exchange parameters over the uplink
	now                func() time.Time
	estimateRoundBytes func() uint64

	areAnnouncementsSuspended bool               // true while the agent does not receive announcements
	lastReportedUsage         UplinkUsageChanged // usage of the traffic budget as reported in the last event
	clockSetBackReported      bool
}

// New returns a BudgetEnforcer. There is no limit if b is nil. The parameter mixes is true if mixing uses the uplink,
// now returns the time that determines the calendar month, and roundEstimate returns the expected traffic of the
// announced or next round in bytes.
func New(core *part.AgentCore, b *UplinkBudget, mixes bool, now func() time.Time,
	roundEstimate func() uint64) (*BudgetEnforcer,
	error) {
	if b != nil {
		if err := b.addAgent(core.StateFolder, now()); err != nil {
			return nil, err
		}
	}
	return &BudgetEnforcer{core: core, budget: b, mixesOverUplink: mixes, now: now, estimateRoundBytes: roundEstimate},
		nil
}

// Close implements part.Closer.
func (p *BudgetEnforcer) Close() {
	if p.budget == nil {
		return
	}
	if err := p.budget.removeAgent(p.now()); err != nil {
		p.core.Logger.Warn("cannot save the traffic count; the count may be too high after the next start", "err", err)
	}
}

// remainingBytes returns the number of bytes that the agent may still transfer this month.
func (p *BudgetEnforcer) remainingBytes() uint64 {
	if p.budget == nil {
		return math.MaxUint64
	}
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.budget.ledger.remainingBytes()
}

// IsSpent reports whether the budget is used up. The agent then neither fetches blobs nor reads announcements, which
// may contain models.
func (p *BudgetEnforcer) IsSpent() bool { return p.remainingBytes() == 0 }

// TrainingMustRest implements part.TrainingRestDecider. Mixing over the uplink pauses while the budget is used up.
func (p *BudgetEnforcer) TrainingMustRest() bool { return p.mixesOverUplink && p.IsSpent() }

// Start implements part.Starter.
func (p *BudgetEnforcer) Start() {
	if p.areAnnouncementsSuspended = p.IsSpent(); !p.areAnnouncementsSuspended {
		p.core.Conn.Subscribe(mqtt.AtMostOnce, p.core.Topics.Announcement())
	}
}

// BeforeWait implements part.BeforeWaitHook. It adds the bytes transferred since the last call to the monthly count.
func (p *BudgetEnforcer) BeforeWait() {
	b := p.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	l, now := b.ledger, p.now()
	back := monthOf(now) < l.month && !p.clockSetBackReported
	var err error
	counts := l.countNewBytes(now)
	if counts {
		err = l.save(2 * l.saveAheadBytes)
	}
	left, margin := l.remainingBytes(), l.saveAheadBytes
	event := UplinkUsageChanged{Month: l.month.String(), UsedBytes: l.usedBytes, LimitBytes: l.monthlyLimitBytes}
	b.mu.Unlock()
	if back {
		p.clockSetBackReported = true
		p.core.Logger.Warn("system clock was set back; traffic is still counted for the later month; to reset the "+
			"count, stop the agent and remove the file",
			"clock", monthOf(now), "counted_for", event.Month, "file", l.folder.FilePath(state.UplinkBudget.Name))
	}
	if counts {
		p.core.WriteRetrier.ReportWriteResult("save the traffic count", err)
	}
	p.core.HandleRoundEvent(agentround.UplinkBudgetChanged{BytesLeft: left})
	if spent := left == 0; spent != p.areAnnouncementsSuspended {
		if p.areAnnouncementsSuspended = spent; spent {
			p.core.Conn.Unsubscribe(p.core.Topics.Announcement())
		} else {
			p.core.Conn.Subscribe(mqtt.AtMostOnce, p.core.Topics.Announcement())
		}
	}
	event.EstimatedRoundBytes = p.estimateRoundBytes()
	last := p.lastReportedUsage
	if event.Month != last.Month || event.EstimatedRoundBytes != last.EstimatedRoundBytes ||
		event.UsedBytes-last.UsedBytes >= margin/8 {
		p.lastReportedUsage = event
		p.core.Observer.Observe(event)
	}
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{budgetBytes, budgetUsedBytes, roundEstimateBytes}

var (
	budgetBytes = observe.OptionalGauge("budget_bytes",
		"Traffic budget of the calendar month (budget.bytes_per_month), in bytes.")
	budgetUsedBytes = observe.OptionalGauge("budget_used_bytes",
		"Bytes sent and received in this calendar month, including protocol overhead.")
	roundEstimateBytes = observe.OptionalGauge("round_estimate_bytes",
		"Estimated traffic of the announced or next round, in bytes. Reported only if a traffic budget is set.")
)

// TrafficBudgetValue is the name of the status value with type *TrafficBudget.
const TrafficBudgetValue = "traffic budget"

// TrafficBudget is the traffic of a month and its limit, as shown in the status.
type TrafficBudget struct {
	Month      string `json:"month"` // calendar month, for example 2026-03
	UsedBytes  uint64 `json:"used"`
	LimitBytes uint64 `json:"limit"`
}

// UplinkUsageChanged reports a changed count of the bytes that the uplink has transferred in this month.
type UplinkUsageChanged struct {
	Month                 string // calendar month, for example 2026-03
	UsedBytes, LimitBytes uint64 // bytes transferred this month, and monthly limit in bytes
	EstimatedRoundBytes   uint64 // expected bytes of the announced or next round
}

// Describe implements observe.Event. It also clears the condition raised by agentround.UplinkBudgetTooSmall.
func (e UplinkUsageChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(budgetBytes, float64(e.LimitBytes))
	d.SetGauge(budgetUsedBytes, float64(e.UsedBytes))
	d.SetGauge(roundEstimateBytes, float64(e.EstimatedRoundBytes))
	d.ShowStatusValue(TrafficBudgetValue, &TrafficBudget{e.Month, e.UsedBytes, e.LimitBytes})
	if e.LimitBytes-min(e.LimitBytes, e.UsedBytes) >= e.EstimatedRoundBytes {
		d.ResolveCondition(agentround.UplinkBudgetCondition)
	}
}
