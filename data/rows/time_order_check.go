package rows

import (
	"slices"
	"sort"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/grid"
	"github.com/fedmesh/fedmesh/spec"
)

// TimeOrderCheck detects timestamps that are out of order. It examines the lines of a file, or the entries of a ring,
// in the order in which they were written.
//
// Its main purpose is to find outliers: a few timestamps that are later than all the lines that follow them, for
// example because a clock jumped to 2036 for a moment, or because day and month were swapped. Without it, a single
// outlier would make every following line late.
//
// The lines with ascending timestamps form the main chain. A late line starts an alternative chain: the main chain
// without its last part, whose timestamps are later than the late line. Following lines extend one chain or both. The
// alternative chain replaces the main chain as soon as one of two conditions holds:
//   - it has gained more lines than it omits, or 8 times as many if the clock was set back by more than 400 days: a
//     clock that was reset, for example to the year 2000, is more probable than many lines with times ahead;
//   - the omitted lines are in the future and the line that extends it is not.
//
// The omitted lines are then recorded as outliers. Lines already classified as late may have been in order, so the
// caller must read the source again with the same set of outliers if FoundOutliers is true.
type TimeOrderCheck struct {
	Lateness            int64 // maximum age of a line relative to the newest line, in nanoseconds
	latestPlausibleTime int64 // latest timestamp that is not in the future; 0 if the device does not know the time

	mainChain        []chainEntry // the most recent entries of the main chain
	isChainTrimmed   bool         // whether older entries of mainChain were dropped
	alternativeChain struct {
		start   int          // index in mainChain of the first entry that the alternative replaces
		entries []chainEntry // entries that replace mainChain[start:]; empty if there is no alternative
	}
	Outliers      map[uint64]bool // numbers of the outlier lines
	FoundOutliers bool            // whether outliers were added since NewTimeOrderCheck

	lines      int // number of lines classified so far
	lastNumber uint64
	lastClass  timeOrderClass // class of the line with number lastNumber
}

// chainEntry is one line in a chain of ascending timestamps.
type chainEntry struct {
	newestTime int64  // newest timestamp of the chain up to this line
	lineNumber uint64 // sequence number of the line
}

// timeOrderClass is the result of TimeOrderCheck.ClassifyTime.
type timeOrderClass int

// Classes of timestamps.
const (
	TimeInOrder timeOrderClass = iota
	TimeLate                   // older than the newest line by more than the lateness
	TimeOutlier                // the timestamp is later than the lines that follow
)

const (
	// trimmedChainLength is the number of entries that remain when the main chain is trimmed, at twice this length. A
	// line that is older than all remaining entries does not start an alternative.
	trimmedChainLength = 1 << 10
	// maxOutliers is the maximum number of outliers that are recorded.
	maxOutliers = 1 << 16
	// MinClockResetJump is the smallest jump into the past that is probably a clock that was reset. A date with day and
	// month swapped, or with the wrong year, is wrong by less than this jump. After such a jump, clockResetFactor times
	// as many lines are needed to replace the main chain.
	MinClockResetJump = 400 * 24 * time.Hour
	clockResetFactor  = 8
	// minTailJump is the jump into the future that makes the last lines of a source outliers although no line follows
	// them. A smaller jump may be caused by a wrong time zone.
	minTailJump = 24 * time.Hour
)

// NewTimeOrderCheck returns a TimeOrderCheck that starts at the first line of a source. outliers contains the outliers
// that a previous pass over the same source found. It may be nil.
func NewTimeOrderCheck(lateness time.Duration, now time.Time, outliers map[uint64]bool) *TimeOrderCheck {
	o := &TimeOrderCheck{Lateness: int64(lateness), Outliers: outliers}
	o.SetCurrentTime(now)
	return o
}

// SetCurrentTime sets the current time. A time before the year 2000 means that the clock of the device was never set.
// In that case no timestamp is considered to be in the future.
func (o *TimeOrderCheck) SetCurrentTime(now time.Time) {
	if o.latestPlausibleTime = 0; now.UnixNano() >= MinReadingTime {
		o.latestPlausibleTime = now.Add(MaxFutureSkew).UnixNano()
	}
}

// Clone returns a copy with chains of its own, for lines whose classification may have to be undone. The copy shares
// the set of outliers.
func (o *TimeOrderCheck) Clone() *TimeOrderCheck {
	n := *o
	n.mainChain, n.alternativeChain.entries = slices.Clone(o.mainChain), slices.Clone(o.alternativeChain.entries)
	return &n
}

// ClassifyTime returns the class of the next line. If it is called again for the same line, it returns the same class.
func (o *TimeOrderCheck) ClassifyTime(at int64, number uint64) timeOrderClass {
	if o.lines > 0 && o.lastNumber == number {
		return o.lastClass
	}
	o.lines++
	o.lastNumber, o.lastClass = number, o.classifyNewTime(at, number)
	return o.lastClass
}

func (o *TimeOrderCheck) classifyNewTime(at int64, number uint64) timeOrderClass {
	if o.Outliers[number] {
		return TimeOutlier
	}
	if len(o.mainChain) == 0 || at >= o.mainChain[len(o.mainChain)-1].newestTime-o.Lateness {
		if len(o.alternativeChain.entries) > 0 {
			o.alternativeChain.entries = appendChainEntry(o.alternativeChain.entries, at, number)
		}
		o.mainChain = appendChainEntry(o.mainChain, at, number)
		o.trimChain()
		return TimeInOrder
	}
	start := o.firstEntryAfter(at + o.Lateness)
	if start == 0 && o.isChainTrimmed {
		return TimeLate
	}
	if i := o.firstEntryAfter(at - 1); o.mainChain[i].newestTime == at {
		// A repeated timestamp, as when clocks are set back, does not make the first occurrence an outlier.
		return TimeLate
	}
	switch n := len(o.alternativeChain.entries); {
	case n > 0 && start <= o.alternativeChain.start && at >= o.alternativeChain.entries[n-1].newestTime-o.Lateness:
		o.alternativeChain.entries = appendChainEntry(o.alternativeChain.entries, at, number)
	case n < 2 || start > o.alternativeChain.start:
		o.alternativeChain.start, o.alternativeChain.entries = start, appendChainEntry(o.alternativeChain.entries[:0],
			at, number)
	default:
		return TimeLate // the line is older than both chains
	}
	omitted := o.mainChain[o.alternativeChain.start:]
	needed := len(omitted)
	if omitted[0].newestTime-o.alternativeChain.entries[0].newestTime > int64(MinClockResetJump) {
		needed *= clockResetFactor
	}
	if len(o.alternativeChain.entries) > needed ||
		o.latestPlausibleTime != 0 && omitted[0].newestTime > o.latestPlausibleTime && at <= o.latestPlausibleTime {
		o.markOutliers(o.alternativeChain.start)
		o.mainChain, o.alternativeChain.entries = append(o.mainChain, o.alternativeChain.entries...),
			o.alternativeChain.entries[:0]
	}
	return TimeLate
}

// appendChainEntry appends a line to a chain.
func appendChainEntry(chain []chainEntry, at int64, number uint64) []chainEntry {
	if n := len(chain); n > 0 {
		at = max(at, chain[n-1].newestTime)
	}
	return append(chain, chainEntry{at, number})
}

// firstEntryAfter returns the index of the first entry of the main chain whose timestamp is later than t, or
// len(o.mainChain).
func (o *TimeOrderCheck) firstEntryAfter(t int64) int {
	return sort.Search(len(o.mainChain), func(i int) bool { return o.mainChain[i].newestTime > t })
}

// trimChain drops the oldest entries of the main chain when it has reached 2*trimmedChainLength entries. An alternative
// that starts at a dropped entry is abandoned.
func (o *TimeOrderCheck) trimChain() {
	if len(o.mainChain) < 2*trimmedChainLength {
		return
	}
	n := len(o.mainChain) - trimmedChainLength
	o.mainChain, o.isChainTrimmed = append(o.mainChain[:0], o.mainChain[n:]...), true
	if o.alternativeChain.start -= n; o.alternativeChain.start < 0 {
		o.alternativeChain.entries = o.alternativeChain.entries[:0]
	}
}

// markOutliers removes mainChain[start:] and records the lines of these entries as outliers.
func (o *TimeOrderCheck) markOutliers(start int) {
	if o.Outliers == nil {
		o.Outliers = map[uint64]bool{}
	}
	for _, entry := range o.mainChain[start:] {
		if len(o.Outliers) == maxOutliers {
			break
		}
		o.Outliers[entry.lineNumber], o.FoundOutliers = true, true
	}
	o.mainChain = o.mainChain[:start]
}

// MarkFutureTailAsOutliers marks the last lines of a source as outliers if they are in the future, follow a line that
// is not in the future, and jump by more than minTailJump. If all timestamps of a source are in the future, it marks no
// line, because the device's clock may be wrong.
func (o *TimeOrderCheck) MarkFutureTailAsOutliers() {
	if o.latestPlausibleTime == 0 {
		return
	}
	start := o.firstEntryAfter(o.latestPlausibleTime)
	if start > 0 && start < len(o.mainChain) &&
		o.mainChain[start].newestTime-o.mainChain[start-1].newestTime > int64(minTailJump) &&
		o.mainChain[start].newestTime-o.latestPlausibleTime > int64(minTailJump) {
		o.markOutliers(start)
	}
}

// MaxLateness returns the maximum age of a reading, relative to the newest reading, up to which a late reading is no
// evidence of a wrong clock. It is the lateness plus the longest label lateness, because labels arrive later than other
// readings.
func MaxLateness(r *spec.RowRecipe) time.Duration {
	lateness := r.Grid.Lateness
	for _, in := range r.Inputs { // only labels have a label lateness
		lateness = max(lateness, r.Grid.Lateness+in.LabelLateness)
	}
	return lateness
}

// Range of plausible times, 1990 to 2100, for guessing the unit of numeric times.
const (
	MinPlausibleUnixNanos = 631_152_000 * int64(time.Second)
	MaxPlausibleUnixNanos = 4_102_444_800 * int64(time.Second)
)

// MinReadingTime is the earliest accepted time of a reading, in the year 2000. The clock of a device that was never set
// starts in 1970.
const MinReadingTime = 946_684_800 * int64(time.Second)

// MaxFutureSkew is the maximum difference by which the time of a reading may be ahead of the device's clock.
const MaxFutureSkew = 5 * time.Minute

// RejectReason classifies a line and returns the reason for which its time is rejected, or "" if it is in order.
func (o *TimeOrderCheck) RejectReason(at, number int64) data.UnusedReason {
	switch o.ClassifyTime(at, uint64(number)) {
	case TimeLate:
		return grid.ReasonLate
	case TimeOutlier:
		return grid.ReasonFutureTime
	}
	return ""
}
