//go:build linux || darwin

package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestExplainSaysWhatToDo(t *testing.T) {
	for _, tc := range []struct {
		cause error
		want  string
	}{
		{syscall.ENOSPC, "free some space; nothing was changed"},
		{syscall.EDQUOT, "free some space; nothing was changed"},
		{syscall.EROFS, "remount it writable"},
		{syscall.EACCES, "give the daemon's user access"},
		{syscall.EPERM, "give the daemon's user access"},
		{syscall.ENOENT, "create the folder"},
		{syscall.EIO, syscall.EIO.Error()},
	} {
		err := explainFileError("write", "/state/x", &fs.PathError{Op: "write", Path: "/state/x", Err: tc.cause})
		if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "/state/x") {
			t.Errorf("%v is explained as %q, want the path and %q", tc.cause, err, tc.want)
		}
		if !errors.Is(err, tc.cause) {
			t.Errorf("%v is not reachable in %q", tc.cause, err)
		}
	}
}

func TestSyncDirNeedsFolder(t *testing.T) {
	if err := syncDir(filepath.Join(t.TempDir(), "gone")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want not exist", err)
	}
}

// ownProcess is the environment variable that marks a process started by inOwnProcess.
const ownProcess = "FEDMESH_TEST_OWN_PROCESS"

// inOwnProcess runs the calling test in a new process and returns true in that process. The caller returns if the
// result is false. A file size limit affects the whole process, in which `go test` also writes a log.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcess) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), ownProcess+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// limitFileSize makes the kernel refuse to grow any file of this process beyond size bytes. It simulates a full disk
// without root rights. The test must run in its own process.
func limitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	tight := old
	tight.Cur = size
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &tight); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(lift)
	return lift
}

func TestWriteFileOnFullDisk(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := LocalDisk.WriteFileDurably(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	limitFileSize(t, 4<<10)
	err := LocalDisk.WriteFileDurably(path, make([]byte, 64<<10), 0o600)
	if err == nil || !strings.Contains(err.Error(), "free some space; nothing was changed") {
		t.Errorf("error %v, want one that says to free space", err)
	}
	if got := mustRead(t, path); string(got) != "old" {
		t.Errorf("content %q, want the old one", got)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"state"}) {
		t.Errorf("folder holds %v: the temporary file was left over", got)
	}
}

func TestSpoolOnFullDisk(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	dir := t.TempDir()
	s := mustOpen(t, dir)
	small, large := []byte("small"), bytes.Repeat([]byte("large"), 16<<10)
	mustPut(t, s, "a", small)
	before := mustRead(t, s.logPath)

	lift := limitFileSize(t, 32<<10)
	err := s.Put(entryOf("b", large), large)
	if err == nil || !strings.Contains(err.Error(), "free some space; nothing was changed") {
		t.Errorf("error %v, want one that says to free space", err)
	}
	if got := mustRead(t, s.logPath); !bytes.Equal(got, before) {
		t.Errorf("log has %d bytes, want the %d before the failure", len(got), len(before))
	}
	mustPut(t, s, "c", small) // this update fits into the limit
	lift()
	mustPut(t, s, "b", large)
	mustClose(t, s)

	s = mustOpen(t, dir)
	defer mustClose(t, s)
	wantServed(t, s, map[string][]byte{"a": small, "b": large, "c": small})
}

// TestSpoolFailedWrites checks a short write, and a log that cannot be truncated afterwards.
func TestSpoolFailedWrites(t *testing.T) {
	for _, tc := range []struct {
		name      string
		fail      hookFile
		wantAfter bool // whether Put works again after the disk has recovered
	}{
		{"short write", hookFile{write: func([]byte) (int, error) { return 7, syscall.ENOSPC }}, true},
		{"cannot cut back", hookFile{
			write:    func([]byte) (int, error) { return 7, syscall.EIO },
			truncate: func() error { return syscall.EIO },
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			var f *hookFile
			s := mustOpenHooked(t, dir, &f)
			mustPut(t, s, "a", []byte("kept"))
			f.write, f.truncate = tc.fail.write, tc.fail.truncate
			if err := s.Put(entryOf("b", nil), nil); err == nil {
				t.Fatal("Put into a failing disk succeeded")
			}
			f.write, f.truncate = nil, nil
			err := s.Put(entryOf("b", nil), nil)
			if (err == nil) != tc.wantAfter {
				t.Fatalf("Put after the failure: %v", err)
			}
			if !tc.wantAfter && !strings.Contains(err.Error(), "until the daemon is restarted") {
				t.Errorf("error %v does not say what to do", err)
			}
			mustClose(t, s)

			want := map[string][]byte{"a": []byte("kept")}
			if tc.wantAfter {
				want["b"] = nil
			}
			s, _ = mustReopen(t, dir)
			defer mustClose(t, s)
			wantServed(t, s, want)
		})
	}
}

// TestSpoolReadErrorIsNotDamage checks that entries are not cut off if the disk fails to read them.
func TestSpoolReadErrorIsNotDamage(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	mustPut(t, s, "a", []byte("kept"))
	mustClose(t, s)
	_, err := hooked(func(f File) File {
		return &hookFile{File: f, read: func() error { return fmt.Errorf("read: %w", syscall.EIO) }}
	}).OpenSpool(dir, testID, failOn(t))
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v, want EIO", err)
	}
	s = mustOpen(t, dir)
	defer mustClose(t, s)
	wantServed(t, s, map[string][]byte{"a": []byte("kept")})
}

func TestHistoryOnFullDisk(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "history.jsonl")
	h, err := LocalDisk.OpenRoundHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := h.Append(1); err != nil {
		t.Fatal(err)
	}
	lift := limitFileSize(t, 100)
	if err := h.Append(strings.Repeat("x", 200)); err == nil || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("error %v, want one that says to free space", err)
	}
	if got := mustRead(t, path); string(got) != "1\n" {
		t.Errorf("history %q, want it as before", got)
	}
	lift()
	if err := h.Append(2); err != nil {
		t.Fatal(err)
	}
	if got := lines(t, path); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("lines %q", got)
	}
}

// TestPartialOnFullDisk checks that a full disk in the middle of a chunk returns an error with advice. The torn chunk
// is not stored, even after reopening, and can be written again.
func TestPartialOnFullDisk(t *testing.T) {
	if !inOwnProcess(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "part")
	p := newPartialOf(4, 3*partChunk)
	f := p.open(t, path)
	lift := limitFileSize(t, partChunk+partChunk/2)
	if err := f.PutChunk(0, p.chunk(0)); err != nil {
		t.Fatal(err)
	}
	for _, k := range []int{1, 2} {
		if err := f.PutChunk(k, p.chunk(k)); err == nil || !strings.Contains(err.Error(), "free some space") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("chunk %d: %v", k, err)
		}
	}
	lift()
	mustHave(t, p.has(f), 0)
	if torn := mustRead(t, path)[partChunk : 2*partChunk]; !bytes.Equal(torn[:partChunk/2], p.chunk(1)[:partChunk/2]) ||
		bytes.Equal(torn, p.chunk(1)) {
		t.Error("the chunk is not torn: the test shows nothing")
	}
	again := p.open(t, path)
	mustHave(t, p.has(again), 0)
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	for _, k := range []int{1, 2} {
		if err := f.PutChunk(k, p.chunk(k)); err != nil {
			t.Error(err)
		}
	}
	mustHave(t, p.has(f), 0, 1, 2)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(mustRead(t, path), p.payload) {
		t.Error("the whole is wrong")
	}
}
