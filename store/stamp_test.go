package store

import (
	"testing"
	"time"
)

func TestStampOld(t *testing.T) {
	s := Stamp{Size: 1, Written: time.Second.Nanoseconds(), Changed: 5 * time.Second.Nanoseconds()}
	if s.Old(time.Unix(7, 0)) || !s.Old(time.Unix(7, 1)) {
		t.Error("want a file to be old from 2 s after its last change on")
	}
}
