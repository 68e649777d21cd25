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

agentd and the coordinator serve their metrics at ` + "`/metrics`" + `, together with the metrics of the Go runtime (` + "`go_*`" + `) and of
the process (` + "`process_*`" + `). ` + "`/-/healthy`" + ` returns 200 while the program runs. ` + "`/-/ready`" + ` returns 200 if the program can write
its state and works, or 503 with the reason. ` + "`/-/ready`" + ` does not require a connection to the broker.

The coordinator also serves:

- ` + "`/sd/agents`" + `: the list of agents for Prometheus (` + "`http_sd_configs`" + `). An agent with ` + "`metrics.advertise`" + ` is listed with the
  agent's own address. With ` + "`?via=coordinator`" + `, all agents are listed with the coordinator's address, so that no agent can
  direct Prometheus to another address.
- ` + "`/agents/{id}/metrics`" + `: the last report of an agent (PROTOCOL.md, 7.11), with the metric names of the agent. The status
  is 503 if three consecutive reports are missing.

Conventions:

- Times are in seconds, timestamps in Unix time, and sizes in bytes. Counters restart at 0 with the program.
- Labels have only the listed values. All series exist from the start, except series with the labels ` + "`stat`" + `, ` + "`class`" + `,
  ` + "`share`" + ` and ` + "`input`" + `, which appear with the first report.
- No label contains an agent's id. The number of the coordinator's series does not depend on the number of agents.
- With ` + "`federations`" + ` in ` + "`agentd.yaml`" + `, each metric of agentd except ` + "`agentd_build_info`" + ` has the label ` + "`federation`" + `. All
  federations of a device show the same traffic budget. A report contains only the metrics of the coordinator's federation.
- A gauge without labels has no series while its value is unknown. No gauge is NaN.
- Histograms have classic and native buckets.
`

// TestDocs compares docs/METRICS.md with the metrics that the programs register.
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
			// the values of these labels depend on the build or the task
			if !strings.HasSuffix(name, "_info") && label != "input" {
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
