package grid

// RecentWrongShare is the share of wrong values among the last ones: of all while they are at most recentWindow, then a
// moving average in which a value counts for e times less after recentWindow others. Of values that were all wrong it
// is below a fifth again after 161 good ones.
type RecentWrongShare struct{ n, share float64 }

const recentWindow = 100

// CountValue counts a value.
func (r *RecentWrongShare) CountValue(wrong bool) {
	x := 0.0
	if wrong {
		x = 1
	}
	r.n = min(r.n+1, recentWindow)
	r.share += (x - r.share) / r.n
}

// Share is the share; 0 before the first value.
func (r *RecentWrongShare) Share() float64 { return r.share }
