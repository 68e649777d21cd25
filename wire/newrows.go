package wire

// NewRows is what an agent says of its rows, where rounds wait for new ones.
type NewRows struct {
	Told  bool
	Rows  uint32  // that no round of the run has used, and the next one would
	Since RoundID // the last round that has used some, as far as the agent knows; 0 = none
}

// newRowsPart is how many new rows an agent should have before the next round; without it rounds do not wait for any.
func newRowsPart(rows *uint32) part {
	return part{"new_rows", NeedIgnore, func(w *writer) {
		if *rows > 0 {
			w.u32(*rows)
		}
	}, func(r *reader) { *rows = r.u32() }}
}

// part is the section of a hello.
func (n *NewRows) part() part {
	return part{"new_rows", NeedIgnore, func(w *writer) {
		if n.Told {
			w.u32(n.Rows)
			w.u64(uint64(n.Since))
		}
	}, func(r *reader) { *n = NewRows{true, r.u32(), RoundID(r.u64())} }}
}
