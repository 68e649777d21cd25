package reproduce

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/plot"
)

func TestWriteHTML(t *testing.T) {
	r := &Report{About: About{"x-1", "One is < two.", "nowhere (1)"}}
	r.compare("key", "one", estimate{1, 0.1}, 1, 0.2)
	r.figure("x-1", plot.Figure{Curves: []plot.Curve{{Name: "curve", X: []float64{1, 2}, Y: []float64{3, 4}}},
		Title: "x-1 in a figure"})
	bad := &Report{About: About{ID: "y"}}
	bad.find(Finding{What: "nothing", Holds: false})
	var page bytes.Buffer
	err := writeHTML(&page, Options{Seed: 7, Quick: true}, []Outcome{{r, 1.25, defaultToy()}, {bad, 2, defaultToy()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 2 claims hold", "in 3 s", "from seed 7, with fewer", "One is &lt; two.",
		`id="x-1"`, "<figure>\n<!--", "x-1 in a figure", "1 ± 0.1", "key_theory", "does not hold"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, outside := range []string{"href=\"http", "src=", "url(", "@import", "<?xml"} {
		if strings.Contains(page.String(), outside) {
			t.Errorf("the page has %s", outside)
		}
	}
	r.figure("empty", plot.Figure{Title: "an empty one"})
	if err := writeHTML(&page, Options{Seed: 7, Quick: true}, []Outcome{{r, 1, defaultToy()}}); err == nil ||
		!strings.Contains(err.Error(), "an empty one") {
		t.Errorf("a figure with nothing in it: %v", err)
	}
}
