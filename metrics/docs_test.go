package metrics_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/metrics"
)

const docsHead = `# Metrics

<!-- The tables are written by go test ./metrics -update and checked by go test ./metrics. -->

Both programs serve these at ` + "`/metrics`" + `, beside the metrics of the Go runtime (` + "`go_*`" + `) and of the process
(` + "`process_*`" + `). ` + "`/-/healthy`" + ` tells that the process answers, ` + "`/-/ready`" + ` whether its state is open and it works (200, or 503
with the reason); the broker may be away.

The coordinator also serves ` + "`/sd/agents`" + `, the list of agents for Prometheus (` + "`http_sd_configs`" + `), and for each agent
` + "`/agents/{id}/metrics`" + `: what the agent last reported over the broker (PROTOCOL.md, 7.11), under the names that it has at the
agent; status 503 when three reports in a row are missing. Agents that say where they can be reached (` + "`metrics.advertise`" + `) are
listed at that address, unless the list is asked for with ` + "`?via=coordinator`" + `: then no agent can send Prometheus to an
address of its choice.

- All times are in seconds, all sizes in bytes. Counters begin with 0 at each start of the process.
- Labels have no values but those listed, and every such series exists from the start, so ` + "`rate()`" + ` and ` + "`== 0`" + ` work
  before the first event. Exceptions: ` + "`stat`" + ` (spreads over agents), ` + "`class`" + ` and ` + "`share`" + ` (evaluations), and ` + "`input`" + ` (names of the
  task's inputs or columns, from the first report of them on). No label names an agent: the series of the coordinator do not grow with the fleet.
- Where ` + "`agentd.yaml`" + ` has ` + "`federations`" + `, each metric of agentd but ` + "`agentd_build_info`" + ` has one more label, ` + "`federation`" + `:
  the name of the entry. The budget is the device's: all of its federations show the same numbers. A report to a
  coordinator is of its federation only.
- A gauge without labels may have no series: its value is not known, or not yet. It never shows NaN.
- Histograms have classic buckets and, for scrapers that ask for them, native ones too.
`

// TestDocs compares docs/METRICS.md with what the programs register.
func TestDocs(t *testing.T) {
	var doc strings.Builder
	doc.WriteString(docsHead)
	for _, p := range programs {
		fmt.Fprintf(&doc, "\n## %s\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n", p.name)
		for _, row := range rowsOf(t, p) {
			doc.WriteString(row)
		}
	}
	testkit.Golden(t, "../docs/METRICS.md", doc.String(), *update)
}

func rowsOf(t *testing.T, p program) []string {
	t.Helper()
	reg := metrics.NewRegistry(p.name)
	o := p.make(reg)
	for _, event := range p.script {
		o.tell(event)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, family := range families {
		name := family.GetName()
		if !strings.HasPrefix(name, p.name+"_") {
			continue
		}
		values := map[string][]string{}
		var labels []string
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				label := pair.GetName()
				if !slices.Contains(labels, label) {
					labels = append(labels, label)
				}
				if !slices.Contains(values[label], pair.GetValue()) {
					values[label] = append(values[label], pair.GetValue())
				}
			}
		}
		for i, label := range labels {
			labels[i] = "`" + label + "`"
			if !strings.HasSuffix(name, "_info") && label != "input" { // whose values depend on the build or the task
				slices.Sort(values[label])
				labels[i] += ": " + strings.Join(values[label], ", ")
			}
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, strings.ToLower(family.GetType().String()),
			strings.Join(labels, "; "), strings.ReplaceAll(family.GetHelp(), "|", `\|`)))
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no metrics", p.name)
	}
	return rows
}
