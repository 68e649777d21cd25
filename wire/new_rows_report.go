package wire

// NewRowsReport is what an agent says of its rows, where rounds wait for new ones.
type NewRowsReport struct {
	IsKnown       bool
	UnusedRows    uint32  // that no round of the run has used, and the next one would
	LastUsedRound RoundID // the last round that has used some, as far as the agent knows; 0 = none
}

// newRowsCodec is the section of a hello.
func (n *NewRowsReport) newRowsCodec() sectionCodec {
	return sectionCodec{"new_rows", IgnoreUnknownSection, func(w *writer) {
		if n.IsKnown {
			w.u32(n.UnusedRows)
			w.u64(uint64(n.LastUsedRound))
		}
	}, func(r *reader) { *n = NewRowsReport{true, r.u32(), RoundID(r.u64())} }}
}
