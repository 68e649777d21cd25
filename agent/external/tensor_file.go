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

// tensorFile is the safetensors file through which the agent and a program exchange parameters.
type tensorFile struct {
	dir, path        string
	dirLock          *store.StateFolderLock // lock of dir, held while this process runs
	header           []byte                 // bytes of the file before the parameters
	spansInFileOrder []tensorSpan           // spans of the parameter vector, in the order of the file
	elementCount     int                    // number of elements of all tensors
	fileReader       *bufio.Reader
	fileWriter       *bufio.Writer
}

// fileBufferBytes is the size of the buffers for reading and writing the file, in bytes.
const fileBufferBytes = 256 << 10

// tensorSpan is the range of a tensor in the vector of all parameters.
type tensorSpan struct {
	tensorName string
	from, to   int
}

// findScratchDir returns the folder for tensor files. It prefers a folder in memory.
func findScratchDir() string {
	for _, dir := range []string{os.Getenv("RUNTIME_DIRECTORY"), "/dev/shm"} {
		if info, err := os.Stat(dir); dir != "" && err == nil && info.IsDir() {
			if f, err := os.CreateTemp(dir, "fedmesh-"); err == nil {
				// Ignore the error: the file only tests whether the folder is writable.
				_ = errors.Join(f.Close(), os.Remove(f.Name()))
				return dir
			}
		}
	}
	return os.TempDir()
}

// newTensorFile creates the tensor file of a model and sets all parameters to zero.
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

// scratchDirPrefix is the prefix of the names of folders with tensor files.
const scratchDirPrefix = "fedmesh-trainer-"

// removeStaleTensorDirs removes the folders of killed agents, which would fill the memory. It skips folders younger
// than one second, which may not be locked yet.
func removeStaleTensorDirs(at string) {
	// Ignore the error: the call fails only for an invalid pattern.
	all, _ := filepath.Glob(filepath.Join(at, scratchDirPrefix+"*"))
	for _, dir := range all {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || !ownedByUser(info) || time.Since(info.ModTime()) < time.Second {
			continue
		}
		// Success means that no running agent uses the folder.
		if held, err := store.LockStateFolder(dir); err == nil {
			// Ignore the error: the next agent tries to remove the folder again.
			_ = errors.Join(held.Unlock(), os.RemoveAll(dir))
		}
	}
}

// createFile creates the file. It is sparse until the first write.
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
	// Sort the spans by tensor name, as in the file.
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

// fileLength returns the length of the tensor file in bytes.
func (t *tensorFile) fileLength() int64 { return int64(len(t.header) + 4*t.elementCount) }

// remove deletes the file and everything that a program has written to its folder.
func (t *tensorFile) remove() error {
	var err error
	if t.dirLock != nil {
		err = t.dirLock.Unlock()
	}
	return errors.Join(err, os.RemoveAll(t.dir))
}

// writeParameters writes the parameters x to the file, from which the program reads them.
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

// readParameters reads the program's parameters from the file into x. It returns a *learner.DivergenceError if they are
// not finite, and another error if the file is invalid.
func (t *tensorFile) readParameters(x []float32, step int) error {
	f, err := t.openIfIntact(os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(t.readParametersFrom(f, x, step), f.Close())
}

func (t *tensorFile) readParametersFrom(f *os.File, x []float32, step int) error {
	t.fileReader.Reset(f)
	// next returns the next n bytes of the file. The bytes are valid until the next call.
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
		return errors.New("the header of tensors.safetensors has changed: the trainer must write its parameters in " +
			"place")
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

// openIfIntact opens the file if it is still a regular file of the same length, since the program may have replaced it.
func (t *tensorFile) openIfIntact(flag int) (*os.File, error) {
	f, err := os.OpenFile(t.path, flag|noFollow, 0)
	if err != nil {
		return nil, fmt.Errorf("tensors.safetensors: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errors.New("tensors.safetensors is no longer a regular file")
	case info.Size() != t.fileLength():
		err = fmt.Errorf("tensors.safetensors has %d bytes instead of %d: the trainer must write its parameters in "+
			"place",
			info.Size(), t.fileLength())
	default:
		return f, nil
	}
	return nil, errors.Join(err, f.Close())
}
