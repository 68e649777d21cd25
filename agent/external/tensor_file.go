package external

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// tensorFile is the safetensors file in which parameters go to and fro.
type tensorFile struct {
	dir, path        string
	dirLock          *store.StateFolderLock // of dir, while this process lives
	head             []byte                 // what stands before the parameters
	spansInFileOrder []span                 // of the vector, in the order of the file
	elements         int                    // of all tensors
	in               *bufio.Reader
	out              *bufio.Writer
}

// fileBufferBytes is how many bytes of the file are in memory at a time.
const fileBufferBytes = 256 << 10

// span is where a tensor lies in the vector of all parameters.
type span struct {
	name     string
	from, to int
}

// scratchDir is where such files lie: in memory, if the system has a place for that.
func scratchDir() string {
	for _, dir := range []string{os.Getenv("RUNTIME_DIRECTORY"), "/dev/shm"} {
		if info, err := os.Stat(dir); dir != "" && err == nil && info.IsDir() {
			if f, err := os.CreateTemp(dir, "fedmesh-"); err == nil {
				_ = errors.Join(f.Close(), os.Remove(f.Name())) // it only shows that there may be one
				return dir
			}
		}
	}
	return os.TempDir()
}

// newTensorFile makes the file of a model whose tensors are zero.
func newTensorFile(layout []learner.TensorSpec) (*tensorFile, error) {
	at := scratchDir()
	removeStaleDirs(at)
	dir, err := os.MkdirTemp(at, scratchDirPrefix)
	if err != nil {
		return nil, err
	}
	t := &tensorFile{dir: dir, path: filepath.Join(dir, "tensors.safetensors")}
	if t.dirLock, err = store.LockStateFolder(dir); err == nil {
		err = t.create(layout)
	}
	if err != nil {
		return nil, errors.Join(err, t.remove())
	}
	return t, nil
}

// scratchDirPrefix is how the names of such files' folders begin.
const scratchDirPrefix = "fedmesh-trainer-"

// removeStaleDirs removes the folders of agents that were killed, which would fill the memory. A new one may not be
// locked yet.
func removeStaleDirs(at string) {
	all, _ := filepath.Glob(filepath.Join(at, scratchDirPrefix+"*")) // only a bad pattern is an error
	for _, dir := range all {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !ownedByUser(info) || time.Since(info.ModTime()) < time.Second {
			continue
		}
		if held, err := store.LockStateFolder(dir); err == nil { // else its agent lives
			_ = errors.Join(held.Unlock(), os.RemoveAll(dir)) // the next one tries again
		}
	}
}

// create makes the file, whose data are a hole until the first write.
func (t *tensorFile) create(layout []learner.TensorSpec) error {
	largest := 0
	for _, tensor := range layout {
		s := span{tensor.Name, t.elements, t.elements}
		n := 1
		for _, d := range tensor.Shape {
			n *= d
		}
		s.to += n
		t.elements, largest = s.to, max(largest, n)
		t.spansInFileOrder = append(t.spansInFileOrder, s)
	}
	var tensors []store.Tensor
	zeros := make([]byte, 4*largest)
	for i, tensor := range layout {
		tensors = append(tensors, store.Tensor{Name: tensor.Name, DType: "F32", Shape: tensor.Shape,
			Data: zeros[:4*(t.spansInFileOrder[i].to-t.spansInFileOrder[i].from)]})
	}
	pieces, err := store.EncodeSafetensorsPieces(tensors, nil)
	if err != nil {
		return err
	}
	// as in the file
	slices.SortFunc(t.spansInFileOrder, func(a, b span) int { return strings.Compare(a.name, b.name) })
	t.head = pieces[0]
	t.in, t.out = bufio.NewReaderSize(nil, max(len(t.head), fileBufferBytes)), bufio.NewWriterSize(nil, fileBufferBytes)
	if err := os.WriteFile(t.path, t.head, 0o600); err != nil {
		return err
	}
	return os.Truncate(t.path, t.size())
}

// size is the length of the file.
func (t *tensorFile) size() int64 { return int64(len(t.head) + 4*t.elements) }

// remove removes the file, and all that a program has put beside it.
func (t *tensorFile) remove() error {
	var err error
	if t.dirLock != nil {
		err = t.dirLock.Unlock()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// write gives the parameters x to the program.
func (t *tensorFile) write(x []float32) error {
	f, err := t.openIfIntact(os.O_WRONLY)
	if err != nil {
		return err
	}
	t.out.Reset(f)
	_, err = t.out.Write(t.head)
	for _, s := range t.spansInFileOrder {
		for rest := x[s.from:s.to]; len(rest) > 0 && err == nil; {
			n := min(len(rest), t.out.Available()/4)
			if n == 0 {
				err = t.out.Flush()
				continue
			}
			_, err = t.out.Write(wire.AppendVector(t.out.AvailableBuffer(), rest[:n]))
			rest = rest[n:]
		}
	}
	if err == nil {
		err = t.out.Flush()
	}
	return errors.Join(err, f.Close())
}

// read takes into x what the program has made of the parameters. The error says what is wrong with the file; it is a
// *learner.DivergenceError of parameters that are not finite.
func (t *tensorFile) read(x []float32, step int) error {
	f, err := t.openIfIntact(os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(t.readFrom(f, x, step), f.Close())
}

func (t *tensorFile) readFrom(f *os.File, x []float32, step int) error {
	t.in.Reset(f)
	// next returns some bytes, which are good until the next call.
	next := func(n int) ([]byte, error) {
		b, err := t.in.Peek(n)
		if err == nil {
			_, err = t.in.Discard(n)
		}
		if err != nil {
			err = fmt.Errorf("tensors.safetensors: %w", err)
		}
		return b, err
	}
	switch head, err := next(len(t.head)); {
	case err != nil:
		return err
	case !bytes.Equal(head, t.head):
		return errors.New("tensors.safetensors has another header now: a program writes its parameters in place")
	}
	for _, s := range t.spansInFileOrder {
		for rest := x[s.from:s.to]; len(rest) > 0; {
			n := min(len(rest), t.in.Size()/4)
			some, err := next(4 * n)
			if err != nil {
				return err
			}
			if err := wire.DecodeVector(rest[:n], some); err != nil {
				return &learner.DivergenceError{Step: step, Problem: err.Error()}
			}
			rest = rest[n:]
		}
	}
	return nil
}

// openIfIntact opens the file, if it is still one of that length: the program may have put anything there.
func (t *tensorFile) openIfIntact(flag int) (*os.File, error) {
	f, err := os.OpenFile(t.path, flag|noFollow, 0)
	if err != nil {
		return nil, fmt.Errorf("tensors.safetensors: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("tensors.safetensors is no file any more")
	case info.Size() != t.size():
		err = fmt.Errorf("tensors.safetensors has %d bytes now, from %d: a program writes its parameters in place",
			info.Size(), t.size())
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}
