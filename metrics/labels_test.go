package metrics_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSetsAreClosed checks that no new series appears when every value of every label is used.
func TestSetsAreClosed(t *testing.T) {
	events := map[string][]observe.Event{"agentd": everyAgentLabel(), "coordinator": everyCoordinatorLabel()}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			reg, o := p.start()
			before := seriesOf(t, reg)
			for _, event := range events[p.name] {
				o.tell(event)
			}
			for _, kind := range mqtt.TopicKinds() {
				for _, how := range []mqtt.ObservedMessage{{IsIncoming: true, PayloadBytes: 1}, {IsIncoming: true,
					IsDropped: true},
					{IsIncoming: true, IsDropped: true, ExceededSizeLimit: 1}, {PayloadBytes: 1}, {IsDropped: true}} {
					o.Traffic(how, kind)
				}
			}
			after := seriesOf(t, reg)
			for _, name := range slices.Sorted(maps.Keys(after)) {
				if _, ok := before[name]; !ok && strings.Contains(name, "{") && !strings.Contains(name, "{stat=") &&
					!strings.Contains(name, "{input=") {
					t.Errorf("%s was not there from the start", name)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(before)) {
				if labelled(name) && after[name] == "0" {
					t.Errorf("%s was not changed by any of %d events: is it a label of nothing?", name,
						len(events[p.name]))
				}
			}
		})
	}
}

// labelled reports whether a series is a counter with labels. The other metrics depend on amounts and on the order of
// events.
func labelled(name string) bool {
	return strings.Contains(name, "_total{")
}

func everyAgentLabel() []observe.Event {
	var events []observe.Event
	for _, r := range wire.EdgeEndReasons() {
		events = append(events, agentround.NeighborEdgeEnded{Reason: r})
	}
	for _, kind := range wire.RoundKinds() {
		for _, result := range agentround.WorkResults() {
			for _, refused := range wire.UpdateRefusalReasons() {
				for _, declined := range wire.DeclineReasons() {
					events = append(events, agentround.WorkEnded{Kind: kind, Result: result, RefusalReason: refused,
						DeclineReason: declined})
				}
			}
		}
	}
	for _, reason := range agentround.AnnouncementIgnoreReasons() {
		events = append(events, agentround.AnnouncementIgnored{Reason: reason})
	}
	for _, reason := range wire.DeclineReasons() {
		events = append(events, agentround.TaskFitnessChecked{UnfitReason: reason})
	}
	for _, reason := range part.DropReasons() {
		events = append(events, agent.MessageDropped{Reason: reason})
	}
	for _, rule := range device.AllRules() {
		events = append(events, device.RulesChecked{RuleVerdict: device.RuleVerdict{DecidingRule: rule}})
		if rule.CanReduceSteps() {
			events = append(events, device.RulesChecked{RuleVerdict: device.RuleVerdict{DecidingRule: rule,
				LocalStepShare: 0.5}})
		}
	}
	for _, why := range data.UnusedReasons() {
		events = append(events,
			taskdata.SourceReportReceived{QualityReport: data.QualityReport{Columns: []data.ColumnReport{
				{Used: 1, Unused: map[data.UnusedReason]uint64{why: 1}}}}})
	}
	for _, kind := range data.TroubleKinds() {
		events = append(events,
			taskdata.SourceReportReceived{QualityReport: data.QualityReport{Troubles: []data.SourceTrouble{{
				Kind: kind}}}})
	}
	for _, file := range state.FileNames() {
		events = append(events, state.FileLost{File: file})
	}
	for _, from := range training.BlockOrigins() {
		events = append(events, training.EndlessBlockBegan{Origin: from})
	}
	for _, result := range predict.JudgmentResults() {
		events = append(events, predict.ModelJudged{Result: result})
	}
	for _, fate := range wire.UpdateFates() {
		events = append(events, upload.UpdateFateReceived{Fate: fate})
	}
	mixed := d2d.MixingStats{AppliedFlows: 1}
	for i := range mixed.IgnoredMessagesByReason {
		mixed.IgnoredMessagesByReason[i] = 1
	}
	events = append(events, training.LocalTrainingFinished{MixingStats: &mixed, LocalSteps: 1})
	for _, reason := range learner.StepCountReasons() {
		events = append(events, training.LocalTrainingFinished{StepCountReason: reason, LocalSteps: 1})
	}
	return append(events, agentround.TaskFitnessChecked{})
}

func everyCoordinatorLabel() []observe.Event {
	var events []observe.Event
	for _, reason := range wire.EnrolmentRefusalReasons() {
		events = append(events, enrol.JoinRefused{Reason: reason})
	}
	for _, reason := range wire.RenewalRefusalReasons() {
		events = append(events, enrol.RenewalRefused{Reason: reason})
	}
	for _, kind := range wire.RoundKinds() {
		events = append(events, round.RoundClosed{Kind: kind})
		for _, reason := range round.AbandonReasons() {
			events = append(events, round.RoundAbandoned{Kind: kind, Reason: reason})
		}
	}
	for _, phase := range round.CoordinatorPhases() {
		events = append(events, round.PhaseEntered{Phase: phase, PreviousPhase: round.CoordinatorIdle,
			PreviousPhaseDuration: 1})
		events = append(events, round.PhaseEntered{Phase: round.CoordinatorIdle, PreviousPhase: phase,
			PreviousPhaseDuration: 1})
	}
	for _, reason := range wire.DeclineReasons() {
		events = append(events, round.AgentUnfit{Reason: reason}, round.AgentDeclined{Reason: reason})
	}
	for _, reason := range wire.UpdateRefusalReasons() {
		events = append(events, round.UpdateRefused{Reason: reason})
	}
	for _, reason := range devices.DropReasons() {
		events = append(events, coordinator.MessageDropped{Reason: reason})
	}
	events = append(events, reportOf("a1", 1, "agentd", 1, 1), reportOf("a1", 1, "agentd", 2, 1))
	for _, r := range aggregation.LeaveOutReasons() {
		events = append(events, aggregation.UpdateLeftOut{Reason: r})
	}
	for _, r := range aggregation.ClipReasons() {
		events = append(events, aggregation.UpdatesClipped{Reason: r, Agents: []wire.AgentID{"a1"}})
	}
	for _, r := range round.SidelineReasons() {
		events = append(events, round.AgentSidelined{Reason: r})
	}
	for _, r := range wire.EdgeEndReasons() {
		events = append(events, round.EdgeEnded{Edge: round.EndedEdge{Reason: r}})
	}
	for _, r := range round.LeaveReasons() {
		events = append(events, round.AgentLeft{Reason: r})
	}
	for _, r := range rollout.AllResults() {
		events = append(events, round.RolloutEnded{Verdict: rollout.Verdict{Result: r}})
	}
	return events
}

// TestListsAreComplete checks that each list of label values contains all values: the value that follows the last one
// in the list must have no name.
func TestListsAreComplete(t *testing.T) {
	kinds, topics, reasons := wire.RoundKinds(), mqtt.TopicKinds(), learner.StepCountReasons()
	for _, tt := range []struct{ list, next, nameless string }{
		{"wire.RoundKinds", (kinds[len(kinds)-1] + 1).String(), "unknown("},
		{"mqtt.TopicKinds", (topics[len(topics)-1] + 1).String(), "unknown"},
		{"learner.StepCountReasons", (reasons[len(reasons)-1] + 1).String(), "StepCountReason("},
		{"the states of presence", (wire.PresenceLost + 1).String(), "unknown("},
	} {
		if !strings.HasPrefix(tt.next, tt.nameless) {
			t.Errorf("%s lacks %s: add it", tt.list, tt.next)
		}
	}
	if reasons[0] != learner.StepCountReason(0) {
		t.Error("learner.StepCountReasons does not begin with the first reason")
	}
	if !slices.Contains(observe.NamesAsStrings(part.DropReasons()), host.DropReasonOverflow) ||
		!slices.Contains(observe.NamesAsStrings(devices.DropReasons()), host.DropReasonOverflow) {
		t.Errorf("a host does not know the reason %q, by which the session's drops are counted",
			host.DropReasonOverflow)
	}
}

// TestSeriesDoNotGrowWithTheFleet checks that the coordinator's process, including the Go runtime, has the same number
// of series for a small fleet and a large fleet of agents.
func TestSeriesDoNotGrowWithTheFleet(t *testing.T) {
	small, large := seriesOfFleet(t, 10), seriesOfFleet(t, 10_000)
	if small != large || large >= 520 {
		t.Errorf("%d series for 10 agents, %d for 10,000; want as many, and fewer than 520", small, large)
	}
}

func seriesOfFleet(t *testing.T, agents int) int {
	reg := metrics.NewRegistry("coordinator")
	o := programs[1].make(reg)
	var ids []wire.AgentID
	for i := range agents {
		ids = append(ids, wire.AgentID(fmt.Sprintf("device-%05d", i)))
	}
	for i, id := range ids {
		o.tell(round.AgentEligible{Agent: id, RowCount: uint64(i), EligibleAgents: i + 1})
		o.tell(round.AgentUnfit{Agent: id, Reason: wire.DeclineReasons()[i%8]})
	}
	o.tell(round.RoundOpened{Round: 1, Kind: wire.KindTraining, EligibleAgents: agents, Participants: ids})
	for i, id := range ids {
		o.tell(round.AgentJoined{Agent: id, Round: 1})
		o.tell(round.AgentDeclined{Agent: id, Round: 1, Reason: wire.DeclineReasons()[i%8]})
		o.tell(reportOf(id, wire.Epoch(i+1), "agentd "+string(id), 1, float64(i)))
		o.tell(reportOf(id, wire.Epoch(i+1), "agentd "+string(id), 2, float64(i)))
		o.tell(acceptedUpdate(id, 1, uint32(i), float64(i), 1/float64(i+1), float64(i)))
		o.tell(round.UpdateRefused{Agent: id, Round: 1,
			Reason: wire.UpdateRefusalReasons()[i%len(wire.UpdateRefusalReasons())]})
		o.tell(coordinator.MessageDropped{Agent: id, Reason: devices.DropMalformed})
		o.Traffic(mqtt.ObservedMessage{IsIncoming: true, Topic: "fl/v1/fed/s/fed-" + string(id), PayloadBytes: i},
			mqtt.KindAgentToCoordinator)
	}
	o.tell(round.RoundClosed{Round: 1, Kind: wire.KindTraining, SelectedAgents: agents, AcceptedUpdates: agents,
		MissingAgents: ids})
	for _, id := range ids {
		o.tell(round.AgentLeft{Agent: id, Reason: round.LeftConnectionLost})
	}
	for _, event := range coordinatorScript { // apply the whole script first, so that every metric has its series
		o.tell(event)
	}
	return len(seriesOf(t, reg))
}
