package agent

import "fmt"

// tooFewError says that there are fewer rows than may be spoken of.
type tooFewError struct {
	rows  int
	least uint64
}

func (e *tooFewError) Error() string {
	return fmt.Sprintf("%d rows of data, fewer than the %d that this task may speak of", e.rows, e.least)
}
