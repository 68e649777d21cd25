// Package budget keeps an agent within the bytes that the uplink of its device may carry in a calendar month. Rounds
// that do not fit are declined. When the budget is spent, the agent does not read announcements until the next month.
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

// UplinkBudget is the budget of a device, which its agents share.
type UplinkBudget struct {
	MonthlyBytes uint64
	Meter        *mqtt.TrafficMeter // counts the bytes of the uplink
	// Dir keeps the count, on the disk of the agents. Empty means the state folder of the first agent.
	Dir string

	mu         sync.Mutex
	ledger     *trafficLedger // while there are agents
	agentCount int
}

// addAgent reads what was counted of this month before, for the first agent.
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

// removeAgent saves the exact count after the last agent.
func (b *UplinkBudget) removeAgent(now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agentCount--; b.agentCount > 0 {
		return nil
	}
	b.ledger.countNewBytes(now)
	return b.ledger.save(0)
}

// BudgetEnforcer is an agent's share in the budget.
type BudgetEnforcer struct {
	core               *part.AgentCore
	budget             *UplinkBudget // nil: the bytes are not limited
	mixesOverUplink    bool          // mixing uses the uplink
	now                func() time.Time
	estimateRoundBytes func() uint64

	areAnnouncementsSuspended bool               // announcements are not read
	lastReportedUsage         UplinkUsageChanged // by the last event
	clockSetBackReported      bool
}

// New makes the part of an agent. Without a budget the bytes are not limited. mixes reports whether mixing uses the
// uplink. now returns the time of day, which decides the month. estimateRoundBytes returns the bytes that the announced
// round moves, or the next one.
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
		p.core.Logger.Warn("cannot save the count of bytes: the next start counts some too many", "err", err)
	}
}

// remainingBytes is what is left of the month.
func (p *BudgetEnforcer) remainingBytes() uint64 {
	if p.budget == nil {
		return math.MaxUint64
	}
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.budget.ledger.remainingBytes()
}

// IsSpent reports whether nothing is left. Then nothing is fetched, and announcements are not read, since they may
// contain models.
func (p *BudgetEnforcer) IsSpent() bool { return p.remainingBytes() == 0 }

// TrainingMustRest implements part.TrainingRestDecider: mixing over the uplink rests while nothing is left.
func (p *BudgetEnforcer) TrainingMustRest() bool { return p.mixesOverUplink && p.IsSpent() }

// Start implements part.Starter.
func (p *BudgetEnforcer) Start() {
	if p.areAnnouncementsSuspended = p.IsSpent(); !p.areAnnouncementsSuspended {
		p.core.Conn.Subscribe(mqtt.AtMostOnce, p.core.Topics.Announcement())
	}
}

// BeforeWait implements part.BeforeWaitHook: it counts the bytes that were moved since the last call.
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
		p.core.Logger.Warn("the clock was set back: bytes go on counting for the later month; if that was the wrong "+
			"one, stop the agent and remove the file",
			"clock", monthOf(now), "counted_for", event.Month, "file", l.folder.FilePath(state.UplinkBudget.Name))
	}
	if counts {
		p.core.WriteRetrier.QualityReport("save the count of bytes", err)
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

// Metrics are the metrics of this package's events.
var Metrics = []*observe.Metric{budgetBytes, budgetUsedBytes, roundEstimateBytes}

var (
	budgetBytes = observe.OptionalGauge("budget_bytes",
		"Traffic budget of the calendar month (budget.bytes_per_month), in bytes.")
	budgetUsedBytes = observe.OptionalGauge("budget_used_bytes",
		"Bytes sent and received in this calendar month, including protocol overhead.")
	roundEstimateBytes = observe.OptionalGauge("round_estimate_bytes",
		"Estimated traffic of the announced or next round, in bytes. Only with a budget.")
)

// TrafficBudgetValue is the name of the status value *TrafficBudget.
const TrafficBudgetValue = "traffic budget"

// TrafficBudget is the traffic of a month against its limit, as a status shows it.
type TrafficBudget struct {
	Month      string `json:"month"` // such as 2026-03
	UsedBytes  uint64 `json:"used"`
	LimitBytes uint64 `json:"limit"`
}

// UplinkUsageChanged: the count of the bytes that the uplink has carried in this month has changed.
type UplinkUsageChanged struct {
	Month                 string // such as 2026-03
	UsedBytes, LimitBytes uint64 // bytes
	EstimatedRoundBytes   uint64 // bytes of the announced round, or of the next round
}

// Describe implements observe.Event. It resolves the condition of agentround.UplinkBudgetTooSmall.
func (e UplinkUsageChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(budgetBytes, float64(e.LimitBytes))
	d.SetGauge(budgetUsedBytes, float64(e.UsedBytes))
	d.SetGauge(roundEstimateBytes, float64(e.EstimatedRoundBytes))
	d.ShowStatusValue(TrafficBudgetValue, &TrafficBudget{e.Month, e.UsedBytes, e.LimitBytes})
	if e.LimitBytes-min(e.LimitBytes, e.UsedBytes) >= e.EstimatedRoundBytes {
		d.ResolveCondition(agentround.UplinkBudgetCondition)
	}
}
