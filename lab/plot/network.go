package plot

import (
	"cmp"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/fedmesh/fedmesh/d2d/graph"
)

// Network draws a graph of devices at their positions, or on a circle if the positions are unknown. The width of an
// edge shows the size of its weight; negative weights are dashed. The colour of an edge shows its health from red to
// green. Devices outside the largest connected component are orange.
type Network struct {
	Graph   *graph.Graph
	Weights []float64 // weight of each edge in the order of the graph's edges; nil draws all edges with the same width
	Health  []float64 // health of each edge from 0 (no messages arrive) to 1; nil if unknown
	Title   string    // text above the graph
	Caption string    // text below the graph
}

// Sizes of the parts of the image, in points.
const (
	margin     = 8 * vg.Length(1)
	lineHeight = 16 * vg.Length(1)
	thinnest   = 0.4 * vg.Length(1)
	thickest   = 3.6 * vg.Length(1)
	nameSize   = 8 * vg.Length(1)

	minLabelledRadius = 4.5 * vg.Length(1) // smallest node radius at which nodes are drawn with a label
	longestInside     = 2                  // maximum length of an id that is drawn inside its node
)

// Draw implements [Drawing]. It panics if Weights or Health is set but does not have one element per edge.
func (n Network) Draw(c draw.Canvas) {
	edges := n.Graph.Edges()
	if n.Weights != nil && len(n.Weights) != len(edges) || n.Health != nil && len(n.Health) != len(edges) {
		panic(fmt.Sprintf("plot: got %d weights and %d health values for %d edges", len(n.Weights), len(n.Health),
			len(edges)))
	}
	top, bottom := margin, margin
	if n.Title != "" {
		c.FillText(centredTextStyle(12, ink), vg.Point{X: c.Center().X, Y: c.Max.Y - margin - lineHeight/2}, n.Title)
		top += lineHeight
	}
	if n.Caption != "" {
		c.FillText(centredTextStyle(9, faint), vg.Point{X: c.Center().X, Y: c.Min.Y + margin + lineHeight/2}, n.Caption)
		bottom += lineHeight
	}
	radius, side := n.nodeRadius(), margin
	if n.hasLabelsBelow(radius) {
		bottom, side = bottom+nameSize, side+2*nameSize
	}
	places := fit(n.places(), draw.Crop(c, side+radius, -side-radius, bottom+radius, -top-radius).Rectangle)
	n.drawEdges(c, places)
	n.drawNodes(c, places, radius)
}

// nodeRadius returns the radius of a node, which shrinks as the number of nodes grows.
func (n Network) nodeRadius() vg.Length {
	return vg.Length(min(max(36/math.Sqrt(float64(n.Graph.NodeCount()+1)), 2), 8))
}

// hasLabelsBelow reports whether some ids are too long for their nodes and are drawn below them.
func (n Network) hasLabelsBelow(radius vg.Length) bool {
	for i := range n.Graph.NodeCount() {
		if radius >= minLabelledRadius && len(n.Graph.NodeID(i)) > longestInside {
			return true
		}
	}
	return false
}

// places returns the positions of the nodes. If they are unknown, it returns positions on a circle, clockwise from the
// top.
func (n Network) places() []graph.Point {
	if places := n.Graph.Positions(); places != nil {
		return places
	}
	places := make([]graph.Point, n.Graph.NodeCount())
	for i := range places {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(len(places)))
		places[i] = graph.Point{X: sin, Y: cos}
	}
	return places
}

// fit moves and scales positions into box, with the same scale on both axes.
func fit(places []graph.Point, box vg.Rectangle) []vg.Point {
	low, high := graph.Point{X: math.Inf(1), Y: math.Inf(1)}, graph.Point{X: math.Inf(-1), Y: math.Inf(-1)}
	for _, p := range places {
		low = graph.Point{X: min(low.X, p.X), Y: min(low.Y, p.Y)}
		high = graph.Point{X: max(high.X, p.X), Y: max(high.Y, p.Y)}
	}
	scale := min(float64(box.Size().X)/(high.X-low.X), float64(box.Size().Y)/(high.Y-low.Y))
	if math.IsInf(scale, 0) || math.IsNaN(scale) {
		scale = 0 // All nodes have the same position, so the scale is arbitrary.
	}
	fitted := make([]vg.Point, len(places))
	for i, p := range places {
		fitted[i] = vg.Point{
			X: (box.Min.X+box.Max.X)/2 + vg.Length(scale*(p.X-(low.X+high.X)/2)),
			Y: (box.Min.Y+box.Max.Y)/2 + vg.Length(scale*(p.Y-(low.Y+high.Y)/2)),
		}
	}
	return fitted
}

// drawEdges draws all edges in order of increasing weight, so that the strongest edges are on top.
func (n Network) drawEdges(c draw.Canvas, places []vg.Point) {
	size := func(k int) float64 { return 1 }
	if n.Weights != nil {
		size = func(k int) float64 { return math.Abs(n.Weights[k]) }
	}
	order, largest := make([]int, len(n.Graph.Edges())), 0.0
	for k := range order {
		order[k] = k
		largest = max(largest, size(k))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size(a), size(b)) })
	for _, k := range order {
		e := n.Graph.Edges()[k]
		style := draw.LineStyle{Color: slate, Width: 1}
		if n.Weights != nil && largest > 0 {
			style.Width = thinnest + (thickest-thinnest)*vg.Length(size(k)/largest)
		}
		if n.Weights != nil && n.Weights[k] < 0 {
			style.Dashes = []vg.Length{4, 3}
		}
		if n.Health != nil {
			style.Color = healthColour(n.Health[k])
		}
		c.StrokeLine2(style, places[e.I].X, places[e.I].Y, places[e.J].X, places[e.J].Y)
	}
}

// healthColour returns a colour from red over yellow to green. The brightness varies too, for red-green colour-blind
// readers.
func healthColour(health float64) color.Color {
	stops := [3]color.NRGBA{{R: 0x9e, G: 0x1b, B: 0x32, A: 0xff}, {R: 0xf2, G: 0xb1, B: 0x34, A: 0xff},
		{R: 0x2e, G: 0x8b, B: 0x68, A: 0xff}}
	at := 2 * min(max(health, 0), 1)
	from := int(min(at, 1))
	part := at - float64(from)
	mix := func(a, b uint8) uint8 { return uint8(math.Round(float64(a) + part*(float64(b)-float64(a)))) }
	a, b := stops[from], stops[from+1]
	return color.NRGBA{R: mix(a.R, b.R), G: mix(a.G, b.G), B: mix(a.B, b.B), A: 0xff}
}

func (n Network) drawNodes(c draw.Canvas, places []vg.Point, radius vg.Length) {
	colours := make([]color.Color, len(places))
	for _, part := range n.Graph.Components() {
		for _, i := range part {
			colours[i] = amber
		}
	}
	for _, i := range n.largestPart() {
		colours[i] = blue
	}
	for i, p := range places {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: color.White, Radius: radius + 1.5, Shape: draw.CircleGlyph{}}, p)
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: colours[i], Radius: radius, Shape: draw.CircleGlyph{}}, p)
	}
	if radius < minLabelledRadius {
		return
	}
	for i, p := range places {
		if id := n.Graph.NodeID(i); len(id) <= longestInside {
			c.FillText(centredTextStyle(radius*0.95, color.White), p, id)
		} else {
			drawName(c, vg.Point{X: p.X, Y: p.Y - radius - nameSize*0.75}, id)
		}
	}
}

// drawName draws id on a light background, because edges pass below it.
func drawName(c draw.Canvas, at vg.Point, id string) {
	style := centredTextStyle(nameSize, ink)
	half := vg.Point{X: style.Width(id)/2 + 1, Y: nameSize / 2}
	c.FillPolygon(color.NRGBA{R: 0xff, G: 0xff, B: 0xff, A: 0xd0}, []vg.Point{
		at.Sub(half), {X: at.X + half.X, Y: at.Y - half.Y}, at.Add(half), {X: at.X - half.X, Y: at.Y + half.Y}})
	c.FillText(style, at, id)
}

// largestPart returns the nodes of the largest connected component; if several are equally large, it returns the first
// of them.
func (n Network) largestPart() (largest []int) {
	for _, part := range n.Graph.Components() {
		if len(part) > len(largest) {
			largest = part
		}
	}
	return largest
}
