package rows

// NeedsReread reports whether another pass over the source would use different lines. This is the case if outliers were
// found, or if the rarer of the two numbers for the second class was accepted. order is nil if the lines have no time.
func NeedsReread(order *TimeOrderCheck, labels *TargetFilter) bool {
	return order != nil && order.FoundOutliers || labels.acceptsRarerSecondClass()
}

// RereadLimit limits how often a source is read again because lines turned out to be invalid. Without the limit, a
// sensor whose clock is always ahead could cause a reread for each line.
type RereadLimit struct {
	rowsAtLastReread int // number of rows at the last reread
	RereadCount      int // number of rereads so far
}

// AllowReread reports whether a source with this number of rows may be read again, and counts the reread if so. After
// more than MaxUnconditionalRereads rereads, at least an eighth of the rows must be new.
func (r *RereadLimit) AllowReread(rows int) bool {
	if r.RereadCount > MaxUnconditionalRereads && rows-r.rowsAtLastReread < rows/8 {
		return false
	}
	r.RereadCount, r.rowsAtLastReread = r.RereadCount+1, rows
	return true
}

// MaxUnconditionalRereads is the number of rereads that are always permitted.
const MaxUnconditionalRereads = 16
