package plot

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// linearTicker places the ticks of a linear axis. It labels 4 to 8 multiples of 1, 2 or 5 times a power of ten, with
// one small tick between two labels.
type linearTicker struct{}

// Ticks implements plot.Ticker. It returns the ticks of the axis range from low to high.
func (linearTicker) Ticks(low, high float64) []plot.Tick {
	const least = 4
	step := math.Pow(10, math.Floor(math.Log10((high-low)/least)))
	for _, m := range []float64{5, 2} {
		if (high-low)/(m*step) >= least {
			step *= m
			break
		}
	}
	var ticks []plot.Tick
	for n := math.Ceil(2*low/step - 1e-9); n*step/2 <= high+1e-9*step; n++ {
		tick := plot.Tick{Value: n*step/2 + 0} // Adding 0 turns −0 into 0.
		if math.Mod(n, 2) == 0 {
			tick.Label = formatTickValue(tick.Value)
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// formatTickValue formats a tick value in its shortest form, such as 0.3 or 1.3e11, without rounding errors in the last
// digits.
func formatTickValue(v float64) string {
	text := strconv.FormatFloat(v, 'g', 12, 64)
	round, err := strconv.ParseFloat(text, 64)
	if err != nil || round == 0 || math.Abs(round) >= 1e-4 && math.Abs(round) < 1e6 {
		return text
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(round, 'e', -1, 64), "e")
	e, err := strconv.Atoi(exponent)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%se%d", digits, e)
}

// inBytes returns a copy of the figure whose X values are converted from bytes to a unit that suits the largest value,
// such as MB.
func (f *Figure) inBytes() *Figure {
	largest := 0.0
	for _, c := range f.Curves {
		for _, x := range c.X {
			largest = max(largest, x)
		}
	}
	unit, size := "bytes", 1.0
	for _, u := range []string{"kB", "MB", "GB", "TB"} {
		if largest < 1000*size {
			break
		}
		unit, size = u, 1000*size
	}
	g := *f
	g.X.Label = unit + " " + f.X.Label
	g.Curves = slices.Clone(f.Curves)
	for i, c := range f.Curves {
		g.Curves[i].X = make([]float64, len(c.X))
		for j, x := range c.X {
			g.Curves[i].X[j] = x / size
		}
	}
	return &g
}

// logTicker places the ticks of a logarithmic axis. It labels powers of ten; on a long axis it labels every n-th power.
// On a short axis it also labels 2 and 5 times a power of ten.
type logTicker struct{}

// Ticks implements plot.Ticker. It returns the ticks of the axis range from low to high.
func (logTicker) Ticks(low, high float64) []plot.Tick {
	const most = 8
	from, to := int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high)))
	// Subtract the logarithms, because the quotient high/low may overflow.
	span := math.Log10(high) - math.Log10(low)
	every := 1 + int(span)/most
	var ticks []plot.Tick
	for e := from; e <= to; e++ {
		for m := 1; m <= 9; m++ {
			v := float64(m) * math.Pow10(e)
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			label := ""
			switch {
			case m == 1 && (e%every == 0 || span < 2):
				label = formatPowerOfTen(1, e)
			case span < 1 || span < 2 && (m == 2 || m == 5):
				label = formatPowerOfTen(m, e)
			case every > 1:
				continue
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// formatPowerOfTen formats m·10^e as a decimal number if it is short, and otherwise in the form 2e5.
func formatPowerOfTen(m, e int) string {
	if e >= -3 && e <= 3 {
		return fmt.Sprintf("%.*f", max(0, -e), float64(m)*math.Pow10(e))
	}
	// Use the e notation, because the fonts lack some superscript digits.
	return fmt.Sprintf("%de%d", m, e)
}
