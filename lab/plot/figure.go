package plot

import (
	"fmt"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Figure is a diagram with one or more curves and a legend.
type Figure struct {
	Title  string
	X, Y   Axis
	Curves []Curve
}

// Axis describes one axis of a figure. Points at or below 0 are not drawn on a logarithmic axis. On a logarithmic Y
// axis, a band extends at most as far below its curve as above, because a band that reaches 0 would cover all other
// curves.
type Axis struct {
	Label string
	Log   bool
	Bytes bool // true if the X values are bytes; the axis then shows a suitable unit such as MB
}

// Curve is a line or a set of points in a figure.
type Curve struct {
	Name                 string // name in the legend; "" omits the curve from the legend
	X, Y                 []float64
	Low, High            []float64 // lower and upper bounds of the band around the curve; set both or neither
	IsPrediction         bool      // true for a theoretical prediction: dashed, in the colour of the previous curve
	SharesPreviousColour bool      // true to draw the curve in the colour of the previous curve
	MarksOnly            bool      // true to draw marks instead of a line; marks of predictions are rings
}

// palette is the colour palette of Okabe and Ito, which colour-blind readers can distinguish. Dark colours come first.
var palette = []color.NRGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x56, 0xb4, 0xe9, 0xff}, {0x33, 0x33, 0x33, 0xff},
}

// Default size of a figure, which fits the width of a page.
const (
	FigureWidth  = 17 * vg.Centimeter
	FigureHeight = 10 * vg.Centimeter
)

// Validate returns an error if the slices of a curve differ in length or if the figure has no visible point.
func (f *Figure) Validate() error {
	for _, c := range f.Curves {
		if len(c.X) != len(c.Y) || len(c.Low) != len(c.High) || c.Low != nil && len(c.Low) != len(c.Y) {
			return fmt.Errorf("figure %q: X, Y and the band of curve %q have different lengths", f.Title, c.Name)
		}
	}
	if box := f.bounds(); !(box.xMin <= box.xMax && box.yMin <= box.yMax) {
		return fmt.Errorf("figure %q has no points", f.Title)
	}
	return nil
}

// Draw implements [Drawing]. It panics if the figure is invalid; call Validate first.
func (f *Figure) Draw(c draw.Canvas) {
	if err := f.Validate(); err != nil {
		panic("plot: " + err.Error())
	}
	if f.X.Bytes {
		f = f.inBytes()
	}
	p, legend, box := newPlot(f), newLegend(), f.bounds()
	own := -1 // index of the current colour in the palette
	for i := range f.Curves {
		curve := &f.Curves[i]
		if !curve.IsPrediction && !curve.SharesPreviousColour || own < 0 {
			own++
		}
		f.addCurve(p, &legend, curve, palette[own%len(palette)], box)
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = box.xMin, box.xMax, box.yMin, box.yMax
	c = draw.Crop(c, margin, -margin, margin, -margin)
	if len(f.Curves) > 1 { // Draw the legend to the right of the plot.
		size := legend.Rectangle(c)
		side := draw.Crop(c, c.Max.X-c.Min.X-(size.Max.X-size.Min.X), 0, 0, -vg.Centimeter)
		legend.Draw(side)
		c = draw.Crop(c, 0, -(size.Max.X-size.Min.X)-vg.Points(10), 0, 0)
	}
	drawLabelled(p, c, replaceMissingGlyphs(f.X.Label), replaceMissingGlyphs(f.Y.Label))
}

// drawLabelled draws the plot and the labels of both axes. The labels of gonum/plot are not used, because gonum/plot
// computes their position wrongly on a logarithmic axis.
func drawLabelled(p *plot.Plot, c draw.Canvas, x, y string) {
	style := p.X.Label.TextStyle
	style.XAlign = draw.XCenter
	room := style.Height("M") + vg.Points(8)
	inner := draw.Crop(c, room, 0, style.Height("M")+vg.Points(2), 0)
	p.Draw(inner)
	data := p.DataCanvas(inner)
	middle := data.Center()
	style.YAlign = draw.YBottom
	c.FillText(style, vg.Point{X: middle.X, Y: c.Min.Y}, x)
	style.Rotation, style.YAlign = math.Pi/2, draw.YTop
	c.FillText(style, vg.Point{X: c.Min.X, Y: middle.Y}, y)
}

// replaceMissingGlyphs replaces characters that the embedded font lacks by similar characters.
func replaceMissingGlyphs(text string) string { return missingGlyphReplacer.Replace(text) }

var missingGlyphReplacer = strings.NewReplacer("⁰", "°", "\u0302", "", "ᵀ", "T", "⁻", "-")

func newPlot(f *Figure) *plot.Plot {
	p := plot.New()
	p.Title.Text = replaceMissingGlyphs(f.Title)
	p.Title.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(13)}
	p.Title.Padding = vg.Points(8)
	for _, a := range []struct {
		axis *plot.Axis
		log  bool
	}{{&p.X, f.X.Log}, {&p.Y, f.Y.Log}} {
		a.axis.Label.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(11)}
		a.axis.Tick.Label.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(10)}
		a.axis.Tick.Marker = linearTicker{}
		if a.log {
			a.axis.Scale, a.axis.Tick.Marker = plot.LogScale{}, logTicker{}
		}
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xe4}, color.Gray{0xe4}
	p.Add(grid)
	return p
}

func newLegend() plot.Legend {
	l := plot.NewLegend()
	l.Top, l.Left = true, true
	l.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: vg.Points(10)}
	l.Padding, l.ThumbnailWidth = vg.Points(3), vg.Points(22)
	return l
}

// axisRanges holds the minimum and maximum of both axes.
type axisRanges struct{ xMin, xMax, yMin, yMax float64 }

// low returns the lower end of the band of curve c at point j. On a logarithmic axis the band is limited as described
// at [Axis].
func (f *Figure) low(c *Curve, j int) float64 {
	if f.Y.Log {
		return max(c.Low[j], c.Y[j]/c.High[j]*c.Y[j])
	}
	return c.Low[j]
}

// bounds returns the smallest axis ranges that contain all visible points and bands.
func (f *Figure) bounds() axisRanges {
	b := axisRanges{math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)}
	for i := range f.Curves {
		c := &f.Curves[i]
		for j, x := range c.X {
			if !f.shown(x, c.Y[j]) {
				continue
			}
			b.xMin, b.xMax = min(b.xMin, x), max(b.xMax, x)
			b.yMin, b.yMax = min(b.yMin, c.Y[j]), max(b.yMax, c.Y[j])
			if c.High != nil && !math.IsInf(c.High[j]-c.Low[j], 0) {
				b.yMax = max(b.yMax, c.High[j])
				b.yMin = min(b.yMin, f.low(c, j))
			}
		}
	}
	b.xMin, b.xMax = widen(b.xMin, b.xMax, f.X.Log, 0)
	b.yMin, b.yMax = widen(b.yMin, b.yMax, f.Y.Log, 0.04)
	return b
}

// widen extends a range on both sides by the fraction share of its length. If all values are equal up to rounding, it
// returns a range around this value.
func widen(low, high float64, log bool, share float64) (float64, float64) {
	size := max(math.Abs(low), math.Abs(high))
	switch {
	case !(low <= high):
		return low, high
	case log: // The limits prevent overflow and underflow.
		air := math.Pow(10, share*(math.Log10(high)-math.Log10(low)))
		if low == high {
			air = 2
		}
		return max(low/air, math.SmallestNonzeroFloat64), min(high*air, math.MaxFloat64)
	case low == high:
		return low - max(1, size/1000), high + max(1, size/1000)
	case high-low < 1e-9*size:
		return low - 1e-9*size, high + 1e-9*size
	}
	return low - share*(high-low), high + share*(high-low)
}

// shown reports whether the point (x, y) is finite and can be drawn on both axes.
func (f *Figure) shown(x, y float64) bool {
	finite := !math.IsNaN(x+y) && !math.IsInf(x+y, 0)
	return finite && (x > 0 || !f.X.Log) && (y > 0 || !f.Y.Log)
}

// addCurve draws curve c with its band and adds the curve to the legend.
func (f *Figure) addCurve(p *plot.Plot, legend *plot.Legend, c *Curve, colour color.NRGBA, b axisRanges) {
	var line, low, high plotter.XYs
	for j, x := range c.X {
		if !f.shown(x, c.Y[j]) {
			continue
		}
		line = append(line, plotter.XY{X: x, Y: c.Y[j]})
		if c.Low != nil {
			low = append(low, plotter.XY{X: x, Y: min(max(f.low(c, j), b.yMin), b.yMax)})
			high = append(high, plotter.XY{X: x, Y: min(max(c.High[j], b.yMin), b.yMax)})
		}
	}
	switch {
	case len(line) == 0:
	case c.MarksOnly:
		marks := addPoints(p, line, low, high, colour)
		if c.IsPrediction {
			marks.Shape, marks.Radius = draw.RingGlyph{}, vg.Points(5)
		}
		addToLegend(legend, c.Name, marks)
	default:
		addBand(p, low, high, colour)
		l := must(plotter.NewLine(line))
		l.Color, l.Width = colour, vg.Points(1.6)
		if c.IsPrediction {
			l.Color, l.Width, l.Dashes = darker(colour), vg.Points(1.3), []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(l)
		addToLegend(legend, c.Name, l)
	}
}

// must returns d and panics if err is not nil. The constructors of gonum/plot fail only for empty or non-finite points,
// which the caller has removed.
func must[D any](d D, err error) D {
	if err != nil {
		panic("plot: " + err.Error())
	}
	return d
}

func addBand(p *plot.Plot, low, high plotter.XYs, colour color.NRGBA) {
	if len(low) == 0 {
		return
	}
	around := append(plotter.XYs(nil), low...)
	for j := len(high) - 1; j >= 0; j-- {
		around = append(around, high[j])
	}
	band := must(plotter.NewPolygon(around))
	colour.A = 0x38
	band.Color, band.Width = colour, 0
	p.Add(band)
}

// addPoints draws a mark for each point, with an error bar from low to high.
func addPoints(p *plot.Plot, at, low, high plotter.XYs, colour color.NRGBA) *plotter.Scatter {
	for j := range low {
		bar := must(plotter.NewLine(plotter.XYs{low[j], high[j]}))
		bar.Color, bar.Width = colour, vg.Points(1.2)
		p.Add(bar)
	}
	marks := must(plotter.NewScatter(at))
	marks.GlyphStyle = draw.GlyphStyle{Color: colour, Radius: vg.Points(3), Shape: draw.CircleGlyph{}}
	p.Add(marks)
	return marks
}

func addToLegend(legend *plot.Legend, name string, of plot.Thumbnailer) {
	if name != "" {
		legend.Add(replaceMissingGlyphs(name), of)
	}
}

func darker(c color.NRGBA) color.NRGBA {
	return color.NRGBA{c.R / 5 * 3, c.G / 5 * 3, c.B / 5 * 3, c.A}
}
