package wire

// NewRowsReport reports how many of an agent's rows no round has used, if rounds wait for new rows.
type NewRowsReport struct {
	IsKnown       bool
	UnusedRows    uint32  // number of rows that no round of the run has used yet
	LastUsedRound RoundID // last round that used the agent's rows, as far as the agent knows; 0 means none
}

func (n *NewRowsReport) newRowsCodec() sectionCodec {
	return sectionCodec{"new_rows", IgnoreUnknownSection, func(w *writer) {
		if n.IsKnown {
			w.u32(n.UnusedRows)
			w.u64(uint64(n.LastUsedRound))
		}
	}, func(r *reader) { *n = NewRowsReport{true, r.u32(), RoundID(r.u64())} }}
}
