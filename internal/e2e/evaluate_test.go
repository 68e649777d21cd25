package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// TestEvaluate runs five agents. Each round selects only one agent for training, but all agents evaluate each model on
// their held-out rows. Log, status and metrics must show the same results.
func TestEvaluate(t *testing.T) {
	t.Parallel()
	f := newFederation(t, brokers.OpenMosquitto(t))
	keys := ""
	for i := range 5 {
		keys += f.AddAgent(t, fmt.Sprint("a", i), plane(60))
	}
	f.lead(t, keys, `{participants: 1, quorum: 1, rounds: 3, deadline: 20s, pause: 500ms, `+
		`evaluation: {every: 1, min_rows: 12}, gather: {target: 5, minimum: 5, within: 20s, spread: 10ms}}`)
	lead := f.Daemon(t, "coordinator", "coordinator")
	var agents []*testkit.Process
	for i := range 5 {
		agents = append(agents, f.Daemon(t, "agentd", fmt.Sprint("a", i), "--set", "evaluation.held_out=0.2"))
	}
	for version := 1; version <= 3; version++ {
		lead.Await(t, fmt.Sprintf("model evaluated on the held-out rows of agents version=%d agents=5 present=5 "+
			"rows=60", version))
	}
	for i, a := range agents {
		a.Await(t, fmt.Sprintf("model evaluated on held-out rows agent=a%d version=3 rows=12", i))
	}
	at := []string{"--config", f.Path("coordinator.yaml")}
	status := programs.MustRun(t, "coordinator", append([]string{"status"}, at...)...)
	if !strings.Contains(status, "(model version 3, measured on 60 rows of 5 agents)") ||
		!strings.Contains(status, "risk by agent: mean") {
		t.Errorf("%s", status)
	}
	csv := programs.MustRun(t, "coordinator", append([]string{"history", "export"}, at...)...)
	if n := strings.Count(csv, ",evaluation,"); n != 3 || !strings.Contains(csv, "evaluated_worst_risk") {
		t.Errorf("%d evaluations in\n%s", n, csv)
	}
}
