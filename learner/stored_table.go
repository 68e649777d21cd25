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
	return &Samples[T]{inputs: inputs, n: n, table: table}
}

// read reads rows of a table.
func (s *Samples[T]) read(x, y []T, from int) { s.table.ReadRows(x, y, s.firstTableRow+from) }

// bufferedTableReader goes over the rows of a table, which it reads in pieces.
type bufferedTableReader[T Float] struct {
	samples    *Samples[T]
	pieceStart int // the row that the piece begins with
	piece      Batch[T]
}

// pieceElements is how much is read at once: enough that the calls of the system do not count, and little beside the
// smallest model's process.
const pieceElements = 16 << 10

// readRows is Batch.Part.
func (p *bufferedTableReader[T]) readRows(from, rows int) Batch[T] {
	inputs, to := p.samples.inputs, min(from+rows, p.samples.n)
	if from < p.pieceStart || to > p.pieceStart+len(p.piece.Y) {
		n := min(max(rows, pieceElements/(inputs+1)/rows*rows), p.samples.n-from)
		p.pieceStart, p.piece.X, p.piece.Y = from, resize(p.piece.X, n*inputs), resize(p.piece.Y, n)
		p.samples.read(p.piece.X, p.piece.Y, from)
	}
	from, to = from-p.pieceStart, to-p.pieceStart
	return Batch[T]{X: p.piece.X[from*inputs : to*inputs], Y: p.piece.Y[from:to]}
}
