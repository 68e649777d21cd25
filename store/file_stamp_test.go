package store

import (
	"testing"
	"time"
)

func TestStampOld(t *testing.T) {
	s := FileStamp{Size: 1, ModifiedAt: time.Second.Nanoseconds(), ChangedAt: 5 * time.Second.Nanoseconds()}
	if s.IsConclusive(time.Unix(7, 0)) || !s.IsConclusive(time.Unix(7, 1)) {
		t.Error("want a file to be old from 2 s after its last change on")
	}
}
