package learner

// StoredTable is rows that are not in memory, such as those of a file. It may be read by several goroutines at once.
type StoredTable[T Float] interface {
	// ReadRows fills x, row-major, and y with the len(y) rows from row from on, which the table has. Of rows that
	// cannot be read the features are NaN, which reaches every risk and gradient, and the targets 0: the owner of the
	// table knows why.
	ReadRows(x, y []T, from int)
}

// NewTableSamples is the first n rows of a table.
func NewTableSamples[T Float](inputs, n int, table StoredTable[T]) *Samples[T] {
	return &Samples[T]{featureCount: inputs, sampleCount: n, table: table}
}

// readTableRows reads rows of a table.
func (s *Samples[T]) readTableRows(x, y []T, from int) { s.table.ReadRows(x, y, s.firstTableRow+from) }

// bufferedTableReader goes over the rows of a table, which it reads in pieces.
type bufferedTableReader[T Float] struct {
	samples          *Samples[T]
	firstBufferedRow int // the row that the piece begins with
	bufferedBatch    Batch[T]
}

// pieceElements is how much is read at once: enough that the calls of the system do not count, and little beside the
// smallest model's process.
const pieceElements = 16 << 10

// readRows is Batch.Part.
func (p *bufferedTableReader[T]) readRows(from, rows int) Batch[T] {
	inputs, to := p.samples.featureCount, min(from+rows, p.samples.sampleCount)
	if from < p.firstBufferedRow || to > p.firstBufferedRow+len(p.bufferedBatch.Y) {
		n := min(max(rows, pieceElements/(inputs+1)/rows*rows), p.samples.sampleCount-from)
		p.firstBufferedRow, p.bufferedBatch.X, p.bufferedBatch.Y = from, resizeSlice(p.bufferedBatch.X, n*inputs),
			resizeSlice(p.bufferedBatch.Y, n)
		p.samples.readTableRows(p.bufferedBatch.X, p.bufferedBatch.Y, from)
	}
	from, to = from-p.firstBufferedRow, to-p.firstBufferedRow
	return Batch[T]{X: p.bufferedBatch.X[from*inputs : to*inputs], Y: p.bufferedBatch.Y[from:to]}
}
