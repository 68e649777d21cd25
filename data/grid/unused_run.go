package grid

// UnusedRun counts the consecutive values of an input that are not used, such as the values since a sensor has changed
// its unit or the name of a field.
type UnusedRun struct {
	Count   uint64 // number of values since the last used value
	longest uint64 // length of the longest earlier run
}

// minUnusualRun is the minimum length of an unusual run.
const minUnusualRun = 3

// CountValue counts one value.
func (r *UnusedRun) CountValue(isUsed bool) {
	if !isUsed {
		r.Count++
		return
	}
	r.longest, r.Count = max(r.longest, r.Count), 0
}

// IsUnusual reports whether the current run is more than twice as long as all earlier runs. A sensor that sends a value
// only in every tenth message therefore has no unusual run after its first two values.
func (r UnusedRun) IsUnusual() bool { return r.Count >= minUnusualRun && r.Count > 2*r.longest }
