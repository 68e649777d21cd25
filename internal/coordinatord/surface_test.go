package coordinatord

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/surface"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// coordinatorEvents are events of the coordinator and of enrolment that coordinatorLines lacks.
var coordinatorEvents = []surface.EventLine{
	{Event: coordinator.LinkChanged{Up: true}},
	{Event: coordinator.SubscriptionsRefused{}},
	{Event: coordinator.AgentListChanged{ListedAgents: 3, RemovedAgents: []wire.AgentID{"a9"}}},
	{Event: coordinator.BrokerTested{SelfTestOutcome: mqtt.SelfTestOutcome{Result: mqtt.SelfTestSwallowed,
		Bytes: 61504}}},
	{Event: coordinator.StorageFailing{Operation: "save the state of the round", Err: errors.New("no space left")}},
	{Event: coordinator.StorageRecovered{}},
	{Event: coordinator.ModelEvaluated{Version: 2, RespondingAgents: 7, PresentAgents: 8,
		Result: evaluation.Result{ReportingAgents: 6, Rows: 600, Risk: 0.5}}},
	{Event: coordinator.ModelEvaluated{Version: 3, RespondingAgents: 2, PresentAgents: 8, TooFewAgents: true}},
	{Event: coordinator.ModelEvaluated{Version: 4, PresentAgents: 8}},
	{Event: coordinator.MessageAccepted{Agent: "a1"}},
	{Event: coordinator.AgentReportReceived{Agent: "a1", Boot: 5}},
	{Event: coordinator.MeshComputed{Round: 3, Mesh: coordinator.Mesh{Edges: []round.Edge{{A: "a1", B: "a2",
		Weight: 0.5}},
		MixingAgents: 2, SecondEigenvalue: 0.25, EigenvalueRatio: 1. / 3, ConnectedComponents: [][]wire.AgentID{{"a1"},
			{"a2"}}}}},
	{Event: round.UploaderReplaced{Round: 3, Agent: "a1", Replacement: "a2"}},
	{Event: round.StopProgressReported{StopRules: stop.Config{Patience: 2}, State: stop.State{Judged: 3, Risk: 0.75,
		Best: 0.5}}},
	{Event: round.EdgesJudged{Round: 2, Reports: 6, MedianDistance: 0.5, EndedEdges: 1}},
	{Event: round.EdgeEnded{Round: 2, MeanDistance: 0.7, MedianDistance: 0.5,
		Edge: round.EndedEdge{A: "a1", B: "a2", Reason: wire.EndStill, Times: 1, Until: 10}}},
	{Event: enrol.DeviceJoined{Agent: "a1", ReplacedAgent: "a0"}},
	{Event: enrol.JoinRefused{From: "192.0.2.7:4000", Reason: wire.JoinUsed}},
	{Event: enrol.CredentialsRenewed{Agent: "a1", KeyChanged: true, CertificateExpiresAt: time.Unix(1_900_000_000, 0)}},
	{Event: enrol.RenewRefused{Agent: "a1", Reason: wire.RenewFailed, Err: errors.New("no space left")}},
	{Event: enrol.OpenJoinChanged{OpenUntil: time.Unix(1_900_000_000, 0)}},
	{Event: enrol.OpenJoinChanged{}},
}

// TestCoordinatorSurface is TestAgentSurface of the coordinator, with the entries of the audit log.
func TestCoordinatorSurface(t *testing.T) {
	lines := slices.Concat(coordinatorLines, coordinatorEvents)
	surface.WantAllEvents(t, lines, "coordinator", "round", "coordinator/enrol")
	state := t.TempDir()
	trail := &auditor{logger: slog.New(slog.DiscardHandler), dir: state}
	var err error
	trail.log, err = audit.Open(store.Machine, state, "air", ed25519.NewKeyFromSeed(make([]byte, 32)),
		func() time.Time { return time.Unix(1_800_000_000, 0) }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	status, ready := daemon.NewStatus(), new(daemon.Readiness)
	ready.SetStateOpened()
	var out strings.Builder
	surface.RecordOutputs(t, &out, lines, status, ready.Err, func(log *slog.Logger, fact any) {
		if f, ok := fact.(enrol.Fact); ok {
			enrolLog{log}.ObserveEnrolment(f)
			trail.ObserveEnrolment(f)
			return
		}
		testkit.NotifyObserver(coordinatorLog{log, &riskMonitor{}}, fact)
		testkit.NotifyObserver(StatusObserver{status, ready}, fact)
		testkit.NotifyObserver(trail, fact)
	})
	trail.close()
	files, err := audit.Files(store.Machine, state)
	if err != nil || len(files) != 1 {
		t.Fatalf("audit log: %v, %v", files, err)
	}
	text, err := os.ReadFile(filepath.Join(state, audit.Folder, files[0]))
	if err != nil {
		t.Fatal(err)
	}
	var entries []string
	for line := range strings.Lines(string(text)) {
		var e audit.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries,
			fmt.Sprintf("  %s | agent=%s | about=%s | who=%s\n", e.Event, e.Agent, e.Subject, e.Actor))
	}
	slices.Sort(entries) // Note writes an entry later than Record does
	out.WriteString("\naudit log\n" + strings.Join(entries, ""))
	testkit.Golden(t, "testdata/coordinator-surface.txt", out.String(), *update)
}
