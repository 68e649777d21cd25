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
	header           []byte                 // what stands before the parameters
	spansInFileOrder []tensorSpan           // of the vector, in the order of the file
	elementCount     int                    // of all tensors
	fileReader       *bufio.Reader
	fileWriter       *bufio.Writer
}

// fileBufferBytes is how many bytes of the file are in memory at a time.
const fileBufferBytes = 256 << 10

// tensorSpan is where a tensor lies in the vector of all parameters.
type tensorSpan struct {
	tensorName string
	from, to   int
}

// findScratchDir is where such files lie: in memory, if the system has a place for that.
func findScratchDir() string {
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
	at := findScratchDir()
	removeStaleTensorDirs(at)
	dir, err := os.MkdirTemp(at, scratchDirPrefix)
	if err != nil {
		return nil, err
	}
	t := &tensorFile{dir: dir, path: filepath.Join(dir, "tensors.safetensors")}
	if t.dirLock, err = store.LockStateFolder(dir); err == nil {
		err = t.createFile(layout)
	}
	if err != nil {
		return nil, errors.Join(err, t.remove())
	}
	return t, nil
}

// scratchDirPrefix is how the names of such files' folders begin.
const scratchDirPrefix = "fedmesh-trainer-"

// removeStaleTensorDirs removes the folders of agents that were killed, which would fill the memory. A new one may not
// be locked yet.
func removeStaleTensorDirs(at string) {
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

// createFile makes the file, whose data are a hole until the first write.
func (t *tensorFile) createFile(layout []learner.TensorSpec) error {
	largest := 0
	for _, tensor := range layout {
		s := tensorSpan{tensor.Name, t.elementCount, t.elementCount}
		n := 1
		for _, d := range tensor.Shape {
			n *= d
		}
		s.to += n
		t.elementCount, largest = s.to, max(largest, n)
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
	slices.SortFunc(t.spansInFileOrder, func(a, b tensorSpan) int {
		return strings.Compare(a.tensorName,
			b.tensorName)
	})
	t.header = pieces[0]
	t.fileReader, t.fileWriter = bufio.NewReaderSize(nil, max(len(t.header), fileBufferBytes)),
		bufio.NewWriterSize(nil, fileBufferBytes)
	if err := os.WriteFile(t.path, t.header, 0o600); err != nil {
		return err
	}
	return os.Truncate(t.path, t.fileLength())
}

// fileLength is the length of the file.
func (t *tensorFile) fileLength() int64 { return int64(len(t.header) + 4*t.elementCount) }

// remove removes the file, and all that a program has put beside it.
func (t *tensorFile) remove() error {
	var err error
	if t.dirLock != nil {
		err = t.dirLock.Unlock()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// write gives the parameters x to the program.
func (t *tensorFile) writeParameters(x []float32) error {
	f, err := t.openIfIntact(os.O_WRONLY)
	if err != nil {
		return err
	}
	t.fileWriter.Reset(f)
	_, err = t.fileWriter.Write(t.header)
	for _, s := range t.spansInFileOrder {
		for rest := x[s.from:s.to]; len(rest) > 0 && err == nil; {
			n := min(len(rest), t.fileWriter.Available()/4)
			if n == 0 {
				err = t.fileWriter.Flush()
				continue
			}
			_, err = t.fileWriter.Write(wire.AppendVector(t.fileWriter.AvailableBuffer(), rest[:n]))
			rest = rest[n:]
		}
	}
	if err == nil {
		err = t.fileWriter.Flush()
	}
	return errors.Join(err, f.Close())
}

// read takes into x what the program has made of the parameters. The error says what is wrong with the file; it is a
// *learner.DivergenceError of parameters that are not finite.
func (t *tensorFile) readParameters(x []float32, step int) error {
	f, err := t.openIfIntact(os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(t.readParametersFrom(f, x, step), f.Close())
}

func (t *tensorFile) readParametersFrom(f *os.File, x []float32, step int) error {
	t.fileReader.Reset(f)
	// next returns some bytes, which are good until the next call.
	next := func(n int) ([]byte, error) {
		b, err := t.fileReader.Peek(n)
		if err == nil {
			_, err = t.fileReader.Discard(n)
		}
		if err != nil {
			err = fmt.Errorf("tensors.safetensors: %w", err)
		}
		return b, err
	}
	switch head, err := next(len(t.header)); {
	case err != nil:
		return err
	case !bytes.Equal(head, t.header):
		return errors.New("tensors.safetensors has another header now: a program writes its parameters in place")
	}
	for _, s := range t.spansInFileOrder {
		for rest := x[s.from:s.to]; len(rest) > 0; {
			n := min(len(rest), t.fileReader.Size()/4)
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
	case info.Size() != t.fileLength():
		err = fmt.Errorf("tensors.safetensors has %d bytes now, from %d: a program writes its parameters in place",
			info.Size(), t.fileLength())
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}
