package grid

import (
	"math"

	"github.com/fedmesh/fedmesh/spec"
)

// agreeing is how many readings of a new level, one after the other, are needed for it to be used.
const agreeing = 3

// doubts decide on readings of an input, which they get in order of time. The zero value has seen none.
type doubts struct {
	same    moment // the first of the readings that are equal up to now
	used    moment // the last that was used
	outlier moment // last reading, if it was too far from used
	agree   int    // number of consecutive readings near outlier; 0 = outlier is not set
	hasSame bool   // same is set
	hasUsed bool   // used is set
}

type moment struct {
	time  int64
	value float64
}

// of returns why a reading is not used; empty if it is.
func (d *doubts) of(in *spec.Input, now moment, step int64) Reason {
	if !d.hasSame || d.same.value != now.value {
		d.same, d.hasSame = now, true
	}
	switch {
	case in.Stuck > 0 && now.time-d.same.time > int64(in.Stuck):
		return Stuck
	case in.Jump > 0 && d.hasUsed && now.far(d.used, in.Jump, step):
		if d.agree > 0 && now.far(d.outlier, in.Jump, step) {
			d.agree = 0
		}
		d.outlier, d.agree = now, d.agree+1
		if d.agree < agreeing {
			return Jump
		}
	}
	d.used, d.hasUsed, d.agree = now, true, 0
	return ""
}

// far reports whether a value is further from an earlier one than it may be: by more than so much in a step of time, or
// in less.
func (m moment) far(from moment, jump float64, step int64) bool {
	return math.Abs(m.value-from.value) > jump*max(1, float64(m.time-from.time)/float64(step))
}
