package external

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// tensorFile is the safetensors file in which parameters go to and fro.
type tensorFile struct {
	dir, path string
	held      *store.DirLock // of dir, while this process lives
	head      []byte         // what stands before the parameters
	order     []span         // of the vector, in the order of the file
	buffer    []byte
}

// span is where a tensor lies in the vector of all parameters.
type span struct{ from, to int }

// scratch is where such files lie: in memory, if the system has a place for that.
func scratch() string {
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
func newTensorFile(layout []learner.Tensor) (*tensorFile, error) {
	at := scratch()
	sweep(at)
	dir, err := os.MkdirTemp(at, folders)
	if err != nil {
		return nil, err
	}
	t := &tensorFile{dir: dir, path: filepath.Join(dir, "tensors.safetensors")}
	if t.held, err = store.Lock(dir); err == nil {
		err = t.create(layout)
	}
	if err != nil {
		return nil, errors.Join(err, t.remove())
	}
	return t, nil
}

// folders is how the names of such files' folders begin.
const folders = "fedmesh-trainer-"

// sweep removes the folders of agents that were killed, which would fill the memory. A new one may not be locked yet.
func sweep(at string) {
	all, _ := filepath.Glob(filepath.Join(at, folders+"*")) // only a bad pattern is an error
	for _, dir := range all {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !ours(info) || time.Since(info.ModTime()) < time.Second {
			continue
		}
		if held, err := store.Lock(dir); err == nil { // else its agent lives
			_ = errors.Join(held.Unlock(), os.RemoveAll(dir)) // the next one tries again
		}
	}
}

func (t *tensorFile) create(layout []learner.Tensor) error {
	at, tensors, of := 0, []store.Tensor{}, map[string]span{}
	for _, tensor := range layout {
		n := 1
		for _, d := range tensor.Shape {
			n *= d
		}
		of[tensor.Name] = span{at, at + n}
		tensors = append(tensors, store.Tensor{Name: tensor.Name, DType: "F32", Shape: tensor.Shape,
			Data: make([]byte, 4*n)})
		at += n
	}
	file, err := store.EncodeSafetensors(tensors, nil)
	if err != nil {
		return err
	}
	sorted, _, err := store.DecodeSafetensors(file)
	if err != nil {
		return err
	}
	for _, tensor := range sorted {
		t.order = append(t.order, of[tensor.Name])
	}
	t.head = slices.Clone(file[:len(file)-4*at])
	t.buffer = make([]byte, len(file))
	return os.WriteFile(t.path, file, 0o600)
}

// remove removes the file, and all that a program has put beside it.
func (t *tensorFile) remove() error {
	var err error
	if t.held != nil {
		err = t.held.Unlock()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// write gives the parameters x to the program.
func (t *tensorFile) write(x []float32) error {
	out := append(t.buffer[:0], t.head...)
	for _, s := range t.order {
		out = wire.AppendVector(out, x[s.from:s.to])
	}
	f, err := t.open(os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(out, 0)
	return errors.Join(err, f.Close())
}

// read takes into x what the program has made of the parameters. The error says what is wrong with the file; it is a
// *learner.DivergenceError of parameters that are not finite.
func (t *tensorFile) read(x []float32, step int) error {
	f, err := t.open(os.O_RDONLY)
	if err != nil {
		return err
	}
	in := t.buffer
	_, err = io.ReadFull(f, in)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("tensors.safetensors: %w", err)
	}
	if !bytes.Equal(in[:len(t.head)], t.head) {
		return errors.New("tensors.safetensors has another header now: a program writes its parameters in place")
	}
	at := len(t.head)
	for _, s := range t.order {
		to := at + 4*(s.to-s.from)
		if err := wire.DecodeVector(x[s.from:s.to], in[at:to]); err != nil {
			return &learner.DivergenceError{Step: step, What: err.Error()}
		}
		at = to
	}
	return nil
}

// open opens the file, if it is still one of that length: the program may have put anything there.
func (t *tensorFile) open(flag int) (*os.File, error) {
	f, err := os.OpenFile(t.path, flag|noFollow, 0)
	if err != nil {
		return nil, fmt.Errorf("tensors.safetensors: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("tensors.safetensors is no file any more")
	case info.Size() != int64(len(t.buffer)):
		err = fmt.Errorf("tensors.safetensors has %d bytes now, from %d: a program writes its parameters in place",
			info.Size(), len(t.buffer))
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}
