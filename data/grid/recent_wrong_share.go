package grid

// RecentWrongShare is the share of wrong values among the most recent values. For the first recentWindow values it is
// their mean; after that it is an exponential moving average with time constant recentWindow. If all values were wrong,
// it falls below one fifth after 161 correct values.
type RecentWrongShare struct{ n, share float64 }

const recentWindow = 100

// CountValue adds one value.
func (r *RecentWrongShare) CountValue(wrong bool) {
	x := 0.0
	if wrong {
		x = 1
	}
	r.n = min(r.n+1, recentWindow)
	r.share += (x - r.share) / r.n
}

// Share returns the share of wrong values; 0 before the first value.
func (r *RecentWrongShare) Share() float64 { return r.share }
