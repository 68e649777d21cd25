package agent

import "fmt"

// tooFewRowsError says that there are fewer rows than may be spoken of.
type tooFewRowsError struct {
	rows  int
	least uint64
}

func (e *tooFewRowsError) Error() string {
	return fmt.Sprintf("%d rows of data, fewer than the %d that this task may speak of", e.rows, e.least)
}
