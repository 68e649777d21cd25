package plot_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/lab/plot"
)

// learning returns a typical figure: a falling curve with a band, a theoretical curve, single points, and values that
// cannot be shown on a logarithmic axis.
func learning() *plot.Figure {
	var x, y, low, high, flat []float64
	for i := 0; i <= 1000; i += 5 {
		v := 10*math.Exp(-float64(i)/60) + 0.004*(1+0.3*math.Sin(float64(i)))
		x, y, flat = append(x, float64(i)), append(y, v), append(flat, 0.004)
		low, high = append(low, v-0.003), append(high, v+0.003)
	}
	y[7] = math.NaN()
	return &plot.Figure{
		Title: "Federated averaging, K = 100, L = 10", X: plot.Axis{Label: "round i"},
		Y: plot.Axis{Label: "E‖w⁰ − w‖²", Log: true},
		Curves: []plot.Curve{
			{Name: "E = 10", X: x, Y: y, Low: low, High: high}, {Name: "theory", X: x, Y: flat, IsPrediction: true},
			{Name: "marks", X: []float64{0, 200, 400, 800}, Y: []float64{0, 1, 0.1, 0.05},
				Low: []float64{0, 0.5, 0.05, -1}, High: []float64{0, 2, 0.2, 0.1}, MarksOnly: true},
		},
	}
}

func asPNG(w io.Writer, f *plot.Figure) error {
	return plot.PNG(w, f, plot.FigureWidth, plot.FigureHeight)
}
func asSVG(w io.Writer, f *plot.Figure) error {
	return plot.SVG(w, f, plot.FigureWidth, plot.FigureHeight)
}

// figures returns a figure of each kind by name.
func figures() map[string]*plot.Figure {
	all := map[string]*plot.Figure{"learning": learning()}
	all["loglog"] = &plot.Figure{Title: "1/K", X: plot.Axis{Label: "agents K", Log: true},
		Y: plot.Axis{Label: "steady state", Log: true},
		Curves: []plot.Curve{{Name: "simulated", X: []float64{1, 10, 100}, Y: []float64{5e-3, 5e-4, 5e-5},
			MarksOnly: true}}}
	all["narrow"] = &plot.Figure{Title: "less than a decade", X: plot.Axis{Label: "t"},
		Y: plot.Axis{Label: "risk", Log: true},
		Curves: []plot.Curve{{Name: "a", X: []float64{1, 2, 3}, Y: []float64{0.3, 0.25, 0.22}},
			{Name: "b", X: []float64{1, 2, 3}, Y: []float64{0.5, 0.45, 0.42}}}}
	var x []float64
	for i := range 50 {
		x = append(x, float64(i*100))
	}
	many := &plot.Figure{Title: "seven curves over many decades", X: plot.Axis{Label: "iteration t"},
		Y: plot.Axis{Label: "relative suboptimality", Log: true}}
	for n := range 7 {
		var y []float64
		for _, v := range x {
			y = append(y, math.Exp(-v*float64(n+1)/1000))
		}
		many.Curves = append(many.Curves, plot.Curve{Name: strings.Repeat("r", n+1), X: x, Y: y})
	}
	all["many"] = many
	for name, y := range map[string][]float64{
		"to the smallest number": {1, 1e-200, 5e-324}, "next to 0": {5e-324, 5e-324, 1e-322},
		"to the largest": {1e-150, 1, 1e300}, "one but for rounding": {5e23, 5e23 * (1 + 4e-16), 5e23},
		"one and large": {1e23, 1e23, 1e23},
	} {
		for _, log := range []bool{true, false} {
			all[fmt.Sprintf("%s, %v", name, log)] = &plot.Figure{Title: "t", Y: plot.Axis{Label: "y", Log: log},
				Curves: []plot.Curve{{X: []float64{0, 1, 2}, Y: y, Low: []float64{y[0], y[1], y[2]},
					High: []float64{y[0], math.Inf(1), y[2]}}}}
		}
	}
	all["constant"] = &plot.Figure{Title: "one value", X: plot.Axis{Label: "x"}, Y: plot.Axis{Label: "y"},
		Curves: []plot.Curve{{Name: "c", X: []float64{3}, Y: []float64{2}}}}
	return all
}

// TestFigures draws each figure as PNG and SVG. If the environment variable FEDMESH_FIGURES names a folder, the images
// are stored there.
func TestFigures(t *testing.T) {
	for name, f := range figures() {
		var image, vector bytes.Buffer
		if err := errors.Join(asPNG(&image, f), asSVG(&vector, f)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if dir := os.Getenv("FEDMESH_FIGURES"); dir != "" {
			if err := errors.Join(os.WriteFile(filepath.Join(dir, name+".png"), image.Bytes(), 0o666),
				os.WriteFile(filepath.Join(dir, name+".svg"), vector.Bytes(), 0o666)); err != nil {
				t.Error(err)
			}
		}
		if picture, err := png.Decode(&image); err != nil || picture.Bounds().Dx() < 900 {
			t.Errorf("%s: %v, %v", name, picture.Bounds(), err)
		}
		if !strings.Contains(vector.String(), f.Title) ||
			!strings.Contains(vector.String(), strings.ReplaceAll(f.Y.Label, "⁰", "°")) {
			t.Errorf("%s: the title or a label is not in the SVG", name)
		}
		for d := xml.NewDecoder(&vector); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
				break
			}
		}
	}
}

// TestSameFigureSameBytes checks that drawing a figure twice gives identical files.
func TestSameFigureSameBytes(t *testing.T) {
	var a, b bytes.Buffer
	if err := errors.Join(asPNG(&a, learning()), asPNG(&b, learning())); err != nil ||
		!bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("two pictures of one figure differ, or %v", err)
	}
}

func TestBadFigures(t *testing.T) {
	for name, f := range map[string]*plot.Figure{
		"nothing": {Title: "t"},
		"nothing above 0": {Y: plot.Axis{Log: true},
			Curves: []plot.Curve{{X: []float64{1, 2}, Y: []float64{0, -1}}}},
		"lengths that disagree": {Curves: []plot.Curve{{X: []float64{1, 2}, Y: []float64{0, 1}, Low: []float64{1},
			High: []float64{1}}}},
	} {
		if err := f.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// drawn returns f as SVG text.
func drawn(t *testing.T, f *plot.Figure) string {
	t.Helper()
	var b bytes.Buffer
	if err := plot.SVG(&b, f, plot.FigureWidth, plot.FigureHeight); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestAxes checks that tick values are round numbers, that bytes are shown in a suitable unit and that large numbers
// are short.
func TestAxes(t *testing.T) {
	f := &plot.Figure{X: plot.Axis{Label: "sent", Bytes: true}, Y: plot.Axis{Label: "risk"},
		Curves: []plot.Curve{{X: []float64{0, 7000}, Y: []float64{1e11, 1.3e11}}}}
	text := drawn(t, f)
	for _, want := range []string{">kB sent<", ">0<", ">7<", ">1.2e11<"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if f.X.Label != "sent" || f.Curves[0].X[1] != 7000 {
		t.Errorf("drawing changes the figure: %+v", f)
	}
	f = &plot.Figure{Curves: []plot.Curve{{X: []float64{0, 0.7}, Y: []float64{0, 3e-5}}}}
	text = drawn(t, f)
	for _, want := range []string{">0.1<", ">0.7<", ">3e-5<"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, ">-0<") {
		t.Errorf("-0 in %s", text)
	}
	f.X.Bytes, f.Curves[0].X[1] = true, 999
	if text = drawn(t, f); !strings.Contains(text, ">bytes <") {
		t.Errorf("no bytes in %s", text)
	}
}

// TestBeside checks that a curve with SharesPreviousColour is drawn in the colour of the previous curve.
func TestBeside(t *testing.T) {
	f := &plot.Figure{Curves: []plot.Curve{
		{Name: "n = 10", X: []float64{0, 1}, Y: []float64{0, 1}},
		{Name: "n = 10, Table 1", X: []float64{1}, Y: []float64{1}, MarksOnly: true, SharesPreviousColour: true},
		{Name: "n = 20", X: []float64{0, 1}, Y: []float64{1, 2}},
	}}
	const first, second, third = "#0072B2", "#D55E00", "#009E73"
	text := drawn(t, f)
	if !strings.Contains(text, first) || !strings.Contains(text, second) || strings.Contains(text, third) {
		t.Errorf("the colours are not two: %s", text)
	}
	if f.Curves[1].SharesPreviousColour = false; !strings.Contains(drawn(t, f), third) {
		t.Errorf("this shows nothing")
	}
}

// TestBandOnLog checks a band that reaches 0 on a logarithmic axis. It must extend as far below the curve as above, and
// not to the edge of the figure.
func TestBandOnLog(t *testing.T) {
	f := &plot.Figure{Y: plot.Axis{Log: true}, Curves: []plot.Curve{{X: []float64{0, 1}, Y: []float64{10, 10},
		Low: []float64{-90, -90}, High: []float64{100, 100}}}}
	text := drawn(t, f)
	for _, want := range []string{">1<", ">100<"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, ">0.1<") {
		t.Errorf("the axis reaches to 0.1: %s", text)
	}
}
