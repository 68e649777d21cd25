package reproduce

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestWriteHTML(t *testing.T) {
	r := &Report{About: About{"x-1", "One is < two.", "nowhere (1)"}}
	r.compare("key", "one", estimate{1, 0.1}, 1, 0.2)
	r.Plots = []Plot{{Name: "x-1"}}
	bad := &Report{About: About{ID: "y"}}
	bad.find(Finding{What: "nothing", Holds: false})
	var page bytes.Buffer
	err := WriteHTML(&page, []Outcome{{r, 1.25}, {bad, 2}}, func(p Plot) ([]byte, error) { return []byte("<svg>" + p.Name + "</svg>"), nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1 of 2 claims hold", "in 3 s", "One is &lt; two.", `id="x-1"`, "<svg>x-1</svg>", "1 ± 0.1", "key_theory", "does not hold"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page.String(), "http") {
		t.Error("the page points outside of itself")
	}
	broken := errors.New("no ink")
	if err := WriteHTML(&page, []Outcome{{r, 1}}, func(Plot) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("a plot that fails: %v", err)
	}
}
