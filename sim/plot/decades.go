package plot

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
)

// decades marks a logarithmic axis: labels at powers of ten, of which many are thinned out, and at 2 and 5 times them too where
// there are few; small marks in between.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	const most = 8
	from, to := int(math.Floor(math.Log10(low))), int(math.Ceil(math.Log10(high)))
	span := math.Log10(high / low)
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
				label = power(1, e)
			case span < 1 || span < 2 && (m == 2 || m == 5):
				label = power(m, e)
			case every > 1:
				continue
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// power writes m·10^e as a person would.
func power(m, e int) string {
	if e >= -3 && e <= 3 {
		return fmt.Sprintf("%.*f", max(0, -e), float64(m)*math.Pow10(e))
	}
	return fmt.Sprintf("%de%d", m, e) // the fonts lack half of the superscripts
}
