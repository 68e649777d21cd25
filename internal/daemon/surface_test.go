package daemon

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/evaluation"
	"github.com/fedmesh/fedmesh/round/stop"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// The files have times of day, which must not depend on the machine.
func TestMain(m *testing.M) {
	time.Local = time.UTC
	m.Run()
}

// agentEvents are events of an agent that agentLines lacks.
var agentEvents = []line{
	{fact: agent.KeyAwaited{}},
	{fact: agent.KeyCame{}},
	{fact: agent.StateLost{File: "obeyed", Err: errors.New("damaged"), Without: "the next announcement is obeyed"}},
	{fact: agent.BootRaised{From: 1, To: 8}},
	{fact: agent.BudgetUsed{Month: "2026-03", Used: 30_000_000, Limit: 500_000_000, Estimate: 90_000}},
	{fact: agent.ModelJudged{Run: 7, Version: 4, Result: agent.ModelTaken, Rows: 300, Risk: 0.375, InUse: 0.5}},
	{fact: agent.ModelJudged{Run: 7, Version: 5, Result: agent.ModelWorse, Rows: 300, Risk: 0.75, InUse: 0.375}},
	{fact: agent.ModelJudged{Run: 7, Version: 6, Result: agent.ModelFailed, Risk: math.NaN(), InUse: math.NaN(),
		Err: errors.New("no space left")}},
	{fact: agent.ModelInUse{Run: 7, Version: 4, Task: "air", Since: time.Unix(1_700_000_000, 0)}},
	{fact: agent.ModelHookFailed{Err: errors.New("exit status 1")}},
	{fact: agent.Predicted{Made: 6, Rows: 4, Failed: 1, Anomalies: 1, Residual: 0.125}},
	{fact: agent.Predicted{Made: 6, Lost: 2, Residual: math.NaN(), Err: errors.New("not connected")}},
	{fact: agent.Predicted{Made: 6, Rows: 6, Residual: math.NaN(), Mended: true}},
	{fact: agent.UpdateSettled{Round: 1, Fate: wire.FateFolded}},
	{fact: agent.UpdateSettled{Round: 2, Fate: wire.FateMissed}},
	{fact: agent.FeedbackKept{Round: 1, Norm: 0.5}},
	{fact: agent.FeedbackKept{Round: 2, Lost: true}},
	{fact: agent.Evaluated{Version: 4, Rows: 300, Risk: 0.375}},
	{fact: agent.Evaluated{Version: 4}},
	{fact: agent.Evaluated{Version: 4, Err: errors.New("measured.csv: no such file")}},
	{fact: agent.NeighborsFound{Neighbors: []wire.AgentID{"a2", "a5"}, Others: 7}},
	{fact: agent.BlockBegan{Block: 2, From: agent.FromNeighbor, Neighbors: 2}},
	{fact: agent.Trained{Round: 2, LocalSteps: 10, StepTime: 3 * time.Millisecond, RiskBefore: 0.5, RiskAfter: 0.25,
		Mixed: &d2d.Stats{Steps: 10, Flows: 38, Late: 2, Skipped: 1, Unreconciled: 1}, MixedFor: time.Second}},
	{fact: agent.Trained{Round: 3, Version: 2, Held: &learner.Score{Risk: 0.5, R2: 0.25, Accuracy: math.NaN(),
		Samples: 90}}},
	{fact: agent.TrainerStarted{Trainer: "defects", Name: "sklearn", Rows: 90, Loose: "no user namespaces"}},
	{fact: agent.TrainerEnded{Trainer: "defects", Err: errors.New("exit status 7"), Again: time.Second}},
	{fact: agent.LinkChanged{Back: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}},
	{fact: round.AnnouncementObeyed{Order: wire.Order{Epoch: 1, Run: 7, Round: 1, Attempt: 1}}},
	{fact: round.TaskPrepared{Unfit: wire.DeclineTooFewRows}},
	{fact: round.EdgeLost{Round: 2, Neighbor: "a3", Reason: wire.EndFar}},
}

// coordinatorEvents are events of the coordinator and of enrolment that coordinatorLines lacks.
var coordinatorEvents = []line{
	{fact: coordinator.LinkChanged{Up: true}},
	{fact: coordinator.SubscriptionsRefused{}},
	{fact: coordinator.AgentsListed{Agents: 3, Gone: []wire.AgentID{"a9"}}},
	{fact: coordinator.BrokerTested{SelfTested: mqtt.SelfTested{Result: mqtt.SelfTestSwallowed, Bytes: 61504}}},
	{fact: coordinator.StorageFailing{What: "save the state of the round", Err: errors.New("no space left")}},
	{fact: coordinator.StorageMended{}},
	{fact: coordinator.SealingChanged{Sealed: true}},
	{fact: coordinator.ModelEvaluated{Version: 2, Heard: 7, Present: 8,
		Result: evaluation.Result{Agents: 6, Rows: 600, Risk: 0.5}}},
	{fact: coordinator.ModelEvaluated{Version: 3, Heard: 2, Present: 8, Few: true}},
	{fact: coordinator.ModelEvaluated{Version: 4, Present: 8}},
	{fact: coordinator.AgentHeard{Agent: "a1"}},
	{fact: coordinator.AgentReported{Agent: "a1", Boot: 5}},
	{fact: coordinator.MeshMade{Round: 3, Mesh: coordinator.Mesh{Edges: []round.Edge{{A: "a1", B: "a2", Weight: 0.5}},
		Agents: 2, SecondEigenvalue: 0.25, Alpha: 1. / 3, Parts: [][]wire.AgentID{{"a1"}, {"a2"}}}}},
	{fact: round.UploaderReplaced{Round: 3, Agent: "a1", By: "a2"}},
	{fact: round.StopJudged{Rule: stop.Config{Patience: 2}, State: stop.State{Judged: 3, Risk: 0.75, Best: 0.5}}},
	{fact: round.EdgesJudged{Round: 2, Reports: 6, Distance: 0.5, Ended: 1}},
	{fact: round.EdgeEnded{Round: 2, Distance: 0.7, Usual: 0.5,
		Edge: round.EndedEdge{A: "a1", B: "a2", Reason: wire.EndStill, Times: 1, Until: 10}}},
	{fact: enrol.Joined{Agent: "a1", Replaces: "a0"}},
	{fact: enrol.Refused{From: "192.0.2.7:4000", Reason: wire.JoinUsed}},
	{fact: enrol.Renewed{Agent: "a1", Key: true, Until: time.Unix(1_900_000_000, 0)}},
	{fact: enrol.RenewRefused{Agent: "a1", Reason: wire.RenewFailed, Err: errors.New("no space left")}},
	{fact: enrol.Opened{Until: time.Unix(1_900_000_000, 0)}},
	{fact: enrol.Opened{}},
}

// TestAgentSurface plays the agent's events, and compares their log lines and what they change in the service's status
// line and in readiness with testdata/agent-surface.txt.
func TestAgentSurface(t *testing.T) {
	lines := slices.Concat(agentLines, agentEvents)
	wantAllEvents(t, lines, "agent", "round")
	status, ready := newStatus(), new(Readiness)
	ready.Opened()
	var out strings.Builder
	playSurface(t, &out, lines, status, ready, func(log *slog.Logger, fact any) {
		testkit.Tell(agentLog{log}, fact)
		testkit.Tell(AgentWatch{status, ready}, fact)
	})
	testkit.Golden(t, "testdata/agent-surface.txt", out.String(), *update)
}

// TestCoordinatorSurface is TestAgentSurface of the coordinator, with the entries of the audit log.
func TestCoordinatorSurface(t *testing.T) {
	lines := slices.Concat(coordinatorLines, coordinatorEvents)
	wantAllEvents(t, lines, "coordinator", "round", "coordinator/enrol")
	state := t.TempDir()
	trail := &auditor{logger: slog.New(slog.DiscardHandler), dir: state}
	var err error
	trail.log, err = audit.Open(store.Machine, state, "air", ed25519.NewKeyFromSeed(make([]byte, 32)),
		func() time.Time { return time.Unix(1_800_000_000, 0) }, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	status, ready := newStatus(), new(Readiness)
	ready.Opened()
	var out strings.Builder
	playSurface(t, &out, lines, status, ready, func(log *slog.Logger, fact any) {
		if f, ok := fact.(enrol.Fact); ok {
			enrolLog{log}.ObserveEnrolment(f)
			trail.ObserveEnrolment(f)
			return
		}
		testkit.Tell(coordinatorLog{log, &risks{}}, fact)
		testkit.Tell(CoordinatorWatch{status, ready}, fact)
		testkit.Tell(trail, fact)
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
			fmt.Sprintf("  %s | agent=%s | about=%s | who=%s\n", e.Event, e.Agent, e.About, e.Who))
	}
	slices.Sort(entries) // Note writes an entry later than Record does
	out.WriteString("\naudit log\n" + strings.Join(entries, ""))
	testkit.Golden(t, "testdata/coordinator-surface.txt", out.String(), *update)
}

// playSurface passes each event to the observers, and writes the changes of their output to out.
func playSurface(t *testing.T, out io.Writer, lines []line, status *Status, ready *Readiness,
	observe func(*slog.Logger, any)) {
	t.Helper()
	statusBefore, readyBefore := status.String(), fmt.Sprint(ready.Err())
	for _, l := range lines {
		var logged strings.Builder
		log, err := logging.New(&logged, debugging())
		if err != nil {
			t.Fatal(err)
		}
		observe(log, l.fact)
		if logged.Len() == 0 {
			logged.WriteString("(not logged)\n")
		}
		_, _ = io.WriteString(out, logged.String())
		if now := status.String(); now != statusBefore {
			_, _ = fmt.Fprintf(out, "    status line: %s\n", now)
			statusBefore = now
		}
		if now := fmt.Sprint(ready.Err()); now != readyBefore {
			_, _ = fmt.Fprintf(out, "    not ready: %s\n", now)
			readyBefore = now
		}
	}
}

// wantAllEvents fails for each event type of the packages that is not among the lines. Of package round it wants those
// that the program's machine emits.
func wantAllEvents(t *testing.T, lines []line, packages ...string) {
	t.Helper()
	played := map[string]bool{}
	for _, l := range lines {
		played[reflect.TypeOf(l.fact).String()] = true
	}
	for _, pkg := range packages {
		file, err := parser.ParseFile(token.NewFileSet(), "../../"+pkg+"/facts.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		method := "fact"
		if pkg == "round" {
			method = map[string]string{"agent": "ofAgent", "coordinator": "ofCoordinator"}[packages[0]]
		}
		found := 0
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != method {
				continue
			}
			found++
			name := path.Base(pkg) + "." + f.Recv.List[0].Type.(*ast.Ident).Name
			if !played[name] {
				t.Errorf("%s is in no line of the story", name)
			}
		}
		if found == 0 {
			t.Errorf("found no events in %s: were they moved?", pkg)
		}
	}
}
