package agentd

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// The files have times of day, which must not depend on the machine.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	m.Run()
}

// agentEvents are events of an agent that agentLines lacks.
var agentEvents = []surface.EventLine{
	{Event: agent.GroupKeyAwaited{}},
	{Event: agent.GroupKeyReceived{}},
	{Event: agent.StateLost{File: "obeyed", Err: errors.New("damaged"),
		Consequence: "the next announcement is obeyed"}},
	{Event: agent.BootRaised{From: 1, To: 8}},
	{Event: agent.BudgetUsed{Month: "2026-03", Used: 30_000_000, Limit: 500_000_000, RoundEstimate: 90_000}},
	{Event: agent.ModelJudged{Run: 7, Version: 4, Result: agent.ModelAdopted, HeldOutRows: 300, Risk: 0.375,
		RiskOfModelInUse: 0.5}},
	{Event: agent.ModelJudged{Run: 7, Version: 5, Result: agent.ModelWorse, HeldOutRows: 300, Risk: 0.75,
		RiskOfModelInUse: 0.375}},
	{Event: agent.ModelJudged{Run: 7, Version: 6, Result: agent.ModelFailed, Risk: math.NaN(),
		RiskOfModelInUse: math.NaN(),
		Err:              errors.New("no space left")}},
	{Event: agent.ModelInUse{Run: 7, Version: 4, Task: "air", Since: time.Unix(1_700_000_000, 0)}},
	{Event: agent.ModelHookFailed{Err: errors.New("exit status 1")}},
	{Event: agent.Predicted{NewForecasts: 6, PublishedForecasts: 4, FailedRows: 1, Anomalies: 1, Residual: 0.125}},
	{Event: agent.Predicted{NewForecasts: 6, LostForecasts: 2, Residual: math.NaN(), Err: errors.New("not connected")}},
	{Event: agent.Predicted{NewForecasts: 6, PublishedForecasts: 6, Residual: math.NaN(), ErrorResolved: true}},
	{Event: agent.UpdateSettled{Round: 1, Fate: wire.FateFolded}},
	{Event: agent.UpdateSettled{Round: 2, Fate: wire.FateMissed}},
	{Event: agent.ErrorFeedbackKept{Round: 1, Norm: 0.5}},
	{Event: agent.ErrorFeedbackKept{Round: 2, ResidualLost: true}},
	{Event: agent.Evaluated{Version: 4, Rows: 300, Risk: 0.375}},
	{Event: agent.Evaluated{Version: 4}},
	{Event: agent.Evaluated{Version: 4, Err: errors.New("measured.csv: no such file")}},
	{Event: agent.NeighborsFound{Neighbors: []wire.AgentID{"a2", "a5"}, OtherAgents: 7}},
	{Event: agent.BlockBegan{Block: 2, Origin: agent.BlockFromNeighbor, Neighbors: 2}},
	{Event: agent.Trained{Round: 2, LocalSteps: 10, StepTime: 3 * time.Millisecond, RiskBefore: 0.5, RiskAfter: 0.25,
		MixingStats: &d2d.MixingStats{Steps: 10, Flows: 38, LateFlows: 2, SkippedSnapshots: 1, Unreconciled: 1},
		MixedFor:    time.Second}},
	{Event: agent.Trained{Round: 3, Version: 2, HeldOutScore: &learner.Score{Risk: 0.5, R2: 0.25, Accuracy: math.NaN(),
		Samples: 90}}},
	{Event: agent.ExternalTrainerStarted{ConfiguredName: "defects", Name: "sklearn", Rows: 90,
		UnconfinedReason: "no user namespaces"}},
	{Event: agent.ExternalTrainerEnded{Trainer: "defects", Err: errors.New("exit status 7"),
		RestartDelay: time.Second}},
	{Event: agent.BrokerLinkChanged{ReconnectAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}},
	{Event: round.AnnouncementObeyed{Position: wire.AnnouncementPosition{Epoch: 1, Run: 7, Round: 1, Attempt: 1}}},
	{Event: round.TaskPrepared{UnfitReason: wire.DeclineTooFewRows}},
	{Event: round.EdgeLost{Round: 2, Neighbor: "a3", Reason: wire.EndFar}},
}

// TestAgentSurface plays the agent's events, and compares their log lines and what they change in the service's status
// line and in readiness with testdata/agent-surface.txt.
func TestAgentSurface(t *testing.T) {
	lines := slices.Concat(agentLines, agentEvents)
	surface.WantAllEvents(t, lines, "agent", "round")
	status, ready := daemon.NewStatus(), new(daemon.Readiness)
	ready.SetStateOpened()
	var out strings.Builder
	surface.RecordOutputs(t, &out, lines, status, ready.Err, func(log *slog.Logger, fact any) {
		testkit.NotifyObserver(agentLog{log}, fact)
		testkit.NotifyObserver(StatusObserver{status, ready}, fact)
	})
	testkit.Golden(t, "testdata/agent-surface.txt", out.String(), *update)
}
