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
	if _, err := Select([]string{"msd", "lab-9"}); err == nil || !strings.Contains(err.Error(), `"lab-9"`) || !strings.Contains(err.Error(), "lab-3") {
		t.Errorf("an unknown id: %v", err)
	}
}
