package data

import (
	"slices"
	"sort"
	"time"
)

// order judges the times of the lines of a file, or of the entries of a ring, in the order in which they were written.
// It finds the few times that are ahead of all that follows them: a clock that jumped to 2036 for a moment, a day and a
// month that were swapped. Without it, one such time would make everything behind it late.
//
// The lines whose times ascend are the chain. When a line is late, an alternative begins: the chain without the lines
// that are ahead of this one. The alternative wins when more lines have continued it than it leaves out, or as soon as
// the lines that it leaves out are ahead of the clock. The lines left out are then ahead: the source has to be read
// once more, and take says of each of them that it is.
type order struct {
	lateness int64 // how much older than the newest line another one may be, in nanoseconds
	clock    int64 // times after it are in the future; 0 = the device does not know the time

	chain []link   // the last ones
	short bool     // older ones were forgotten
	other struct { // the alternative
		cut   int    // index of the first link of the chain that it leaves out
		links []link // that have continued it; none = there is no alternative
	}
	ahead map[uint64]bool // lines that do not count, by number
	found bool            // lines were added to ahead: all has to be read once more
	lines int             // that were taken
	last  position        // of the last one
	at    uint64          // its number
}

// link is a line of the chain.
type link struct {
	newest int64 // of the times of the chain up to this line
	number uint64
}

// position is the result of order.take.
type position int

const (
	inOrder position = iota
	isLate           // older than the newest line by more than the lateness
	isAhead          // of the lines that follow
)

const (
	// chainMost bounds the links that are kept. An alternative that leaves out more of them does not begin.
	chainMost = 1 << 10
	// aheadMost bounds the lines that are ahead.
	aheadMost = 1 << 16
	// leap is how far ahead of the clock the last lines of a source must be to be ahead without any line behind them.
	// Less than a day may be the time zone of the whole file.
	leap = 24 * time.Hour
)

// newOrder returns an order that begins at the first line. ahead is what an earlier reading has found.
func newOrder(lateness time.Duration, now time.Time, ahead map[uint64]bool) *order {
	o := &order{lateness: int64(lateness), ahead: ahead}
	o.setClock(now)
	return o
}

// setClock takes note of the time. A device that was never told the time does not know the future.
func (o *order) setClock(now time.Time) {
	if o.clock = 0; now.UnixNano() >= leastTime {
		o.clock = now.Add(futureMost).UnixNano()
	}
}

// clone returns a copy for lines that may have to be taken back.
func (o *order) clone() *order {
	n := *o
	n.chain, n.other.links = slices.Clone(o.chain), slices.Clone(o.other.links)
	return &n
}

// take judges a line: the next one, or the same one again.
func (o *order) take(at int64, number uint64) position {
	if o.lines > 0 && o.at == number {
		return o.last
	}
	o.lines++
	o.at, o.last = number, o.judge(at, number)
	return o.last
}

func (o *order) judge(at int64, number uint64) position {
	if o.ahead[number] {
		return isAhead
	}
	if len(o.chain) == 0 || at >= o.chain[len(o.chain)-1].newest-o.lateness {
		if len(o.other.links) > 0 {
			o.other.links = extend(o.other.links, at, number)
		}
		o.chain = extend(o.chain, at, number)
		o.forget()
		return inOrder
	}
	cut := o.after(at + o.lateness)
	if cut == 0 && o.short {
		return isLate
	}
	if i := o.after(at - 1); o.chain[i].newest == at {
		return isLate // a second time, as in the hour in which clocks go back: that does not speak against the first
	}
	switch n := len(o.other.links); {
	case n > 0 && cut <= o.other.cut && at >= o.other.links[n-1].newest-o.lateness:
		o.other.links = extend(o.other.links, at, number)
	case n < 2 || cut > o.other.cut:
		o.other.cut, o.other.links = cut, extend(o.other.links[:0], at, number)
	default:
		return isLate // for both
	}
	first := o.chain[o.other.cut].newest
	if len(o.other.links) > len(o.chain)-o.other.cut || o.clock != 0 && first > o.clock && at <= o.clock {
		o.leaveOut(o.other.cut)
		o.chain, o.other.links = append(o.chain, o.other.links...), o.other.links[:0]
	}
	return isLate
}

// extend appends a line to a chain.
func extend(chain []link, at int64, number uint64) []link {
	if n := len(chain); n > 0 {
		at = max(at, chain[n-1].newest)
	}
	return append(chain, link{at, number})
}

// after returns the index of the first link of the chain with a time after t.
func (o *order) after(t int64) int {
	return sort.Search(len(o.chain), func(i int) bool { return o.chain[i].newest > t })
}

// forget drops the oldest links if there are many.
func (o *order) forget() {
	if len(o.chain) < 2*chainMost {
		return
	}
	n := len(o.chain) - chainMost
	o.chain, o.short = append(o.chain[:0], o.chain[n:]...), true
	if o.other.cut -= n; o.other.cut < 0 {
		o.other.links = o.other.links[:0]
	}
}

// leaveOut ends the chain before a link. The lines behind it are ahead.
func (o *order) leaveOut(cut int) {
	if o.ahead == nil {
		o.ahead = map[uint64]bool{}
	}
	for _, l := range o.chain[cut:] {
		if len(o.ahead) == aheadMost {
			break
		}
		o.ahead[l.number], o.found = true, true
	}
	o.chain = o.chain[:cut]
}

// end judges the last lines, behind which there are none yet: they are ahead if they leap into the future from lines
// that are not. A source whose times are all in the future is not judged: its clock may be right, and the device's
// wrong.
func (o *order) end() {
	if o.clock == 0 {
		return
	}
	cut := o.after(o.clock)
	if cut > 0 && cut < len(o.chain) && o.chain[cut].newest-o.chain[cut-1].newest > int64(leap) &&
		o.chain[cut].newest-o.clock > int64(leap) {
		o.leaveOut(cut)
	}
}
