package reproduce

// Plot is the data of one diagram.
type Plot struct {
	Name   string  `json:"name"` // of its file, without extension
	Title  string  `json:"title"`
	X      Axis    `json:"x"`
	Y      Axis    `json:"y"`
	Curves []Curve `json:"curves"`
}

// Axis says what an axis shows.
type Axis struct {
	Label string `json:"label"`
	Log   bool   `json:"log"`
}

// Curve is one line of a diagram, or points.
type Curve struct {
	Name   string    `json:"name"`
	X      []float64 `json:"x"`
	Y      []float64 `json:"y"`
	Low    []float64 `json:"low,omitempty"` // a 95 % band; both or neither
	High   []float64 `json:"high,omitempty"`
	Theory bool      `json:"theory,omitempty"` // predicted, not measured: dashed
	Points bool      `json:"points,omitempty"` // marks instead of a line
}

// add appends a point with its interval.
func (c *Curve) add(x float64, e estimate) {
	c.X = append(c.X, x)
	c.Y = append(c.Y, e.mean)
	c.Low = append(c.Low, e.mean-e.half)
	c.High = append(c.High, e.mean+e.half)
}
