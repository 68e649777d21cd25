package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// median returns the median of a duration over all runs of the named contestant.
func (m *match) median(name string, of func(race) time.Duration) time.Duration {
	var all []time.Duration
	for _, r := range m.runs[name] {
		all = append(all, of(r))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// flowerTables returns two Markdown tables: the duration of a round, and the CPU time and memory of each program.
func flowerTables(all []*match, reps int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; Go %s, Flower %s; medians of %d alternating runs.\n\nDuration of a round in ms:\n\n",
		machine(),
		strings.TrimPrefix(runtime.Version(), "go"), flowerVersion, reps)
	b.WriteString("| agents | d | " + agentsOnDisk + " | " + agentsInMemory + " | Flower | " +
		agentsOnDisk + " ÷ Flower | " + agentsInMemory + " ÷ Flower |\n|---|---|---|---|---|---|---|\n")
	took := func(r race) time.Duration { return r.took }
	for _, m := range all {
		disk, memory, theirs := m.median(agentsOnDisk, took), m.median(agentsInMemory, took), m.median(flower, took)
		fmt.Fprintf(&b, "| %d | %d | %s | %s | %s | %s | %s |\n", m.agents, m.dim, milliseconds(disk),
			milliseconds(memory), milliseconds(theirs), ratio(disk, theirs), ratio(memory, theirs))
	}
	b.WriteString("\nProcessor time per round in ms and memory in MB (PSS), fedmesh with " + agentsOnDisk +
		"; mean of all agents and of all clients:\n\n" +
		"| agents | d | coordinator | agent | broker | Flower server | Flower client | coordinator, MB | agent, MB | " +
		"Flower server, MB | Flower client, MB |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(&b, "| %d | %d", m.agents, m.dim)
		for _, x := range []struct {
			name string
			of   func(race) time.Duration
		}{
			{agentsOnDisk, func(r race) time.Duration { return r.leader }},
			{agentsOnDisk, func(r race) time.Duration { return r.agent }},
			{agentsOnDisk, func(r race) time.Duration { return r.broker }},
			{flower, func(r race) time.Duration { return r.leader }},
			{flower, func(r race) time.Duration { return r.agent }},
		} {
			fmt.Fprintf(&b, " | %s", milliseconds(m.median(x.name, x.of)))
		}
		for _, name := range []string{agentsOnDisk, flower} {
			last := m.runs[name][len(m.runs[name])-1]
			fmt.Fprintf(&b, " | %.0f | %.0f", float64(last.leaderBytes)/1e6, float64(last.agentByte)/1e6)
		}
		b.WriteString(" |\n")
	}
	return b.String()
}

// machine describes the machine on which the benchmark runs.
func machine() string {
	model := "processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, rest, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(rest)
				break
			}
		}
	}
	return fmt.Sprintf("%d virtual cores (%s)", runtime.NumCPU(), model)
}
