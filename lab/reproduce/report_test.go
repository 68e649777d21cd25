package reproduce

import (
	"encoding/json"
	"math"
	"testing"
)

func TestReportShape(t *testing.T) {
	r := &Report{About: About{ID: "x"}}
	r.compare("b", "…", estimate{1, 0.1}, 1.05, 0.2)
	r.compare("a", "…", estimate{1, math.Inf(1)}, 1, math.Inf(1))
	r.Values.Set("b", 2)
	text, err := json.Marshal(r.Values)
	if want := `{"b":2,"b_theory":1.05,"b_ci95":0.1,"a":1,"a_theory":1,"a_ci95":null}`; err != nil ||
		string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	if !r.Holds {
		t.Error("two findings that hold make no report that holds")
	}
	r.compare("c", "far off", estimate{1, 0.1}, 1.26, 1)
	r.compare("d", "after it", estimate{1, 0.1}, 1, 1)
	if r.Holds {
		t.Error("holds with a finding that does not")
	}
	if (estimate{1, 0.1}).agrees(1, 0.05) {
		t.Error("an interval of ±10 % says nothing at a resolution of 5 %")
	}
	if _, ok := r.Values.Get("nothing"); ok || len(r.Values.Keys()) != 12 {
		t.Errorf("keys %v", r.Values.Keys())
	}
}
