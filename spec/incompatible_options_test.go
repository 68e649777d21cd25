package spec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
)

// TestPairsInDocs checks that docs/ALGORITHMS.md contains the table of incompatible options, line by line.
func TestPairsInDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/ALGORITHMS.md")
	if err != nil {
		t.Fatal(err)
	}
	const head = "| option | incompatible with | file | reason |\n|---|---|---|---|\n"
	var table strings.Builder
	for _, p := range spec.Incompatibilities(spec.InBothFiles) {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", pick(p.A), pick(p.B), p.FileScope, p.Reason)
	}
	_, rest, found := strings.Cut(string(text), head)
	if got, _, _ := strings.Cut(rest, "\n\n"); !found || strings.TrimSpace(got) != strings.TrimSpace(table.String()) {
		t.Errorf("docs/ALGORITHMS.md has\n%s\nwant\n%s%s", got, head, table.String())
	}
}

func pick(p spec.OptionCondition) string {
	if p.IsNegated {
		return fmt.Sprintf("`%s` other than `%s`", p.Option, p.OptionValue)
	}
	return fmt.Sprintf("`%s: %s`", p.Option, p.OptionValue)
}

func TestChoice(t *testing.T) {
	c := spec.ChosenOptions{spec.OptionServerOptimizer: "fedavgm", spec.OptionExchange: "gradient"}
	var k spec.ProblemList
	c.CheckIncompatibilities(&k, spec.InCoordinatorFile,
		map[spec.OptionName]string{spec.OptionExchange: "task.exchange"})
	want := "server_optimizer.name: fedavgm cannot be combined with task.exchange gradient: " +
		"the gradient exchange has its own step size"
	if got := fmt.Sprint(k.Err()); got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if c.Matches(spec.OptionCondition{Option: spec.OptionServerEvery, OptionValue: "1", IsNegated: true}) {
		t.Error("an option that was not chosen has a word")
	}
}
