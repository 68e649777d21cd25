package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func mustAppend(t *testing.T, path string, rounds ...int) {
	t.Helper()
	h, err := LocalDisk.OpenRoundHistory(path)
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
	for line, err := range LocalDisk.NewestHistoryLines(path) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(line))
	}
	slices.Reverse(all)
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
	for line, err := range LocalDisk.NewestHistoryLines(path) {
		if string(line) != `{"round":3}` || err != nil {
			t.Errorf("first line %q, error %v; want the newest", line, err)
		}
		break
	}
}

// counted counts the bytes that are read from a file.
type counted struct {
	io.ReaderAt
	bytes int
}

func (c *counted) ReadAt(p []byte, at int64) (int, error) {
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, at)
}

// TestHistoryIsReadFromTheEnd checks that reading the newest lines of a history reads only the blocks that contain
// these lines, however long the history is. A line that is longer than a block, or that ends at the boundary of a
// block, must be returned completely.
func TestHistoryIsReadFromTheEnd(t *testing.T) {
	for _, tt := range []struct{ lines, length, want, most int }{
		{40_000, 118, 60, 1}, {40_000, 118, 300, 3}, {400, historyBlockSize, 3, 5}, {400, historyBlockSize + 1, 3, 5},
		{40, 5*historyBlockSize + 7, 2, 12},
	} {
		var file []byte
		for i := range tt.lines {
			file = fmt.Appendf(file, "%0*d\n", tt.length-1, i)
		}
		r := &counted{ReaderAt: bytes.NewReader(file)}
		got := 0
		err := readLinesBackwards(r, int64(len(file)), func(line []byte) bool {
			if want := fmt.Sprintf("%0*d", tt.length-1, tt.lines-1-got); string(line) != want {
				t.Fatalf("%+v: line %d from the end is %.20q…, want %.20q…", tt, got, line, want)
			}
			got++
			return got < tt.want
		})
		if err != nil || got != tt.want || r.bytes > tt.most*historyBlockSize {
			t.Errorf("%+v: %d lines, %d bytes read, error %v", tt, got, r.bytes, err)
		}
	}
}

// BenchmarkHistoryNewest reads the 60 newest lines of a file as long as a history of 4 million lines. Only the newest
// lines are actually written.
func BenchmarkHistoryNewest(b *testing.B) {
	path := filepath.Join(b.TempDir(), "history.jsonl")
	line := strings.Repeat("x", 229) + "\n"
	f, err := os.Create(path)
	if err == nil {
		_, err = f.WriteAt([]byte("\n"+strings.Repeat(line, 100)), int64(3_999_900*len(line)-1))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		n := 0
		for _, err := range LocalDisk.NewestHistoryLines(path) {
			if n++; n == 60 || err != nil {
				break
			}
		}
	}
}

// TestHistoryTorn truncates the history after each byte. The complete lines must remain, and an incomplete line must be
// neither returned nor kept.
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
	mustWrite(t, path, []byte("whole\n"+strings.Repeat("\x00", 10_000))) // longer than one block of the backward search
	mustAppend(t, path, 9)
	if got := mustRead(t, path); string(got) != "whole\n{\"round\":9}\n" {
		t.Errorf("%q behind a long torn tail", got)
	}
}

func TestHistoryLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history.jsonl")
	h, err := LocalDisk.OpenRoundHistory(path)
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
	for _, err := range LocalDisk.NewestHistoryLines(path) {
		if !errors.As(err, &corrupt) {
			t.Errorf("a line above the limit: %v, want a CorruptError", err)
		}
	}
	if corrupt == nil {
		t.Error("a line above the limit is no error")
	}
}
