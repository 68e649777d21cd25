package reproduce

import (
	"strings"
	"testing"
)

func TestSelect(t *testing.T) {
	all, err := Select(nil)
	if err != nil || len(all) != len(All()) {
		t.Fatalf("%d experiments: %v", len(all), err)
	}
	seen := map[string]bool{}
	for _, e := range all {
		a := e.About()
		if a.ID == "" || a.Claim == "" || a.Source == "" || seen[a.ID] {
			t.Errorf("%+v", a)
		}
		seen[a.ID] = true
	}
	two, err := Select([]string{"msd", "lab-3", "msd"})
	if err != nil || len(two) != 2 || two[0].About().ID != "lab-3" || two[1].About().ID != "msd" {
		t.Errorf("%v, %v", two, err)
	}
	if _, err := Select([]string{"msd", "lab-9"}); err == nil || !strings.Contains(err.Error(), `"lab-9"`) ||
		!strings.Contains(err.Error(), "lab-3") {
		t.Errorf("an unknown id: %v", err)
	}
}

// TestSet checks that the function Set replaces lists completely and refuses invalid values.
func TestSet(t *testing.T) {
	l := Lab4()
	if err := Set(l, "cases", `[{"agents": 3, "participants": 2, "local_steps": 2}]`); err != nil ||
		len(l.Cases) != 1 || l.Cases[0] != (LabCase{3, 2, 2, 0}) {
		t.Errorf("cases %v, %v", l.Cases, err)
	}
	if err := Set(l, "step_size", "0.03"); err != nil || l.StepSize != 0.03 || l.Inputs != 10 {
		t.Errorf("step size %v, %d inputs, %v", l.StepSize, l.Inputs, err)
	}
	for setting, want := range map[[2]string]string{
		{"step_size", "null"}: "want a value", {"runs", "2.5"}: "cannot unmarshal number 2.5",
		{"step", "1"}:               `lab-4 has no key "step"; available keys: batch_size, cases`,
		{"cases", `[{"agent": 3}]`}: `unknown field "agent"`,
	} {
		if err := Set(l, setting[0], setting[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want one with %q", setting, err, want)
		}
	}
}
