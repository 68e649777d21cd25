package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func mustAppend(t *testing.T, path string, rounds ...int) {
	t.Helper()
	h, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rounds {
		if err := h.Append(map[string]int{"round": r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func lines(t *testing.T, path string) (all []string) {
	t.Helper()
	err := ReadHistory(path, func(line []byte) error {
		all = append(all, string(line))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	if got := lines(t, path); got != nil {
		t.Errorf("lines %q of a missing file", got)
	}
	mustAppend(t, path, 1, 2)
	mustAppend(t, path, 3)
	want := []string{`{"round":1}`, `{"round":2}`, `{"round":3}`}
	if got := lines(t, path); !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
	stop := errors.New("enough")
	calls := 0
	err := ReadHistory(path, func([]byte) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("stopped after %d calls with %v", calls, err)
	}
}

// Cut at every byte: the whole lines stay, the torn one is neither read nor in the way of the next.
func TestHistoryTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	mustAppend(t, path, 1, 2, 3)
	whole := mustRead(t, path)
	for cut := range whole {
		mustWrite(t, path, whole[:cut])
		var want []string
		for i := range cut / len(`{"round":1}`+"\n") {
			want = append(want, fmt.Sprintf(`{"round":%d}`, i+1))
		}
		if got := lines(t, path); !slices.Equal(got, want) {
			t.Fatalf("cut at %d: lines %q, want %q", cut, got, want)
		}
		mustAppend(t, path, 9)
		want = append(want, `{"round":9}`)
		if got := mustRead(t, path); string(got) != strings.Join(want, "\n")+"\n" {
			t.Fatalf("cut at %d, then appended: %q", cut, got)
		}
	}
	mustWrite(t, path, []byte("whole\n"+strings.Repeat("\x00", 10_000))) // more than one block of the search
	mustAppend(t, path, 9)
	if got := mustRead(t, path); string(got) != "whole\n{\"round\":9}\n" {
		t.Errorf("%q behind a long torn tail", got)
	}
}

func TestHistoryLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	h, err := OpenHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	longest := strings.Repeat("x", maxHistoryLine-len(`""`)-1)
	if err := h.Append(longest); err != nil {
		t.Error(err)
	}
	if err := h.Append(longest + "x"); err == nil {
		t.Error("a line above the limit was appended")
	}
	if err := h.Append(func() {}); err == nil {
		t.Error("a function was appended")
	}
	if got := lines(t, path); len(got) != 1 || len(got[0]) != maxHistoryLine-1 {
		t.Errorf("%d lines, want the longest that is allowed", len(got))
	}
	mustWrite(t, path, make([]byte, maxHistoryLine+1))
	var corrupt *CorruptError
	if err := ReadHistory(path, func([]byte) error { return nil }); !errors.As(err, &corrupt) {
		t.Errorf("a line above the limit: %v, want a CorruptError", err)
	}
}
