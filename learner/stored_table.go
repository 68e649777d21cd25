package learner

// StoredTable is a table of rows that are not in memory but, for example, in a file. Its methods must be safe for
// concurrent use.
type StoredTable[T Float] interface {
	// ReadRows reads len(y) rows, starting at the row from, into x (row-major) and y. If rows cannot be read, it sets
	// their features to NaN, which makes every risk NaN, and their targets to 0.
	ReadRows(x, y []T, from int)
}

// NewTableSamples returns the first n rows of a table as samples.
func NewTableSamples[T Float](inputs, n int, table StoredTable[T]) *Samples[T] {
	return &Samples[T]{featureCount: inputs, sampleCount: n, table: table}
}

func (s *Samples[T]) readTableRows(x, y []T, from int) { s.table.ReadRows(x, y, s.firstTableRow+from) }

// bufferedTableReader reads the rows of a table in pieces.
type bufferedTableReader[T Float] struct {
	samples          *Samples[T]
	firstBufferedRow int // index of the first buffered row
	bufferedBatch    Batch[T]
}

// pieceElements is the number of elements that are read from a table at a time. It is large enough that system calls
// take little time, and small enough to need little memory.
const pieceElements = 16 << 10

// readRows reads rows from the table, for Batch.RowRange.
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
