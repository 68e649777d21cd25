package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/store"
)

// ReplicatedFolder defines the files that are replicated: files in a folder, and files at other paths.
type ReplicatedFolder struct {
	Disk store.Disk
	Dir  string
	// IsReplicated reports whether a file is replicated. name is its path in Dir, with slashes. If name ends with a
	// slash, it reports whether the folder contains replicated files.
	IsReplicated func(name string) bool
	// ExternalPathByName contains the paths of files outside Dir, by the name under which they are stored.
	ExternalPathByName map[string]string

	scannedFileByName map[string]scannedFile // files of the last scan
}

// scannedFile is a file as found in the last scan.
type scannedFile struct {
	stamp store.FileStamp
	file  replicatedFile
}

// localPath returns the path of a replicated file on this machine.
func (f *ReplicatedFolder) localPath(name string) string {
	if elsewhere, is := f.ExternalPathByName[name]; is {
		return elsewhere
	}
	return filepath.Join(f.Dir, filepath.FromSlash(name))
}

// fileNames returns the sorted names of all replicated files that exist.
func (f *ReplicatedFolder) fileNames() ([]string, error) {
	all, err := f.appendFileNamesIn(nil, "")
	if err != nil {
		return nil, fmt.Errorf("cannot list the state folder: %w", err)
	}
	for name, path := range f.ExternalPathByName {
		if _, err := f.Disk.Lstat(path); err == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all, nil
}

// appendFileNamesIn appends the names of the replicated files in a subfolder of Dir.
func (f *ReplicatedFolder) appendFileNamesIn(all []string, dir string) ([]string, error) {
	entries, err := f.Disk.ReadDir(f.localPath(dir))
	if errors.Is(err, fs.ErrNotExist) && dir != "" { // the folder was removed concurrently
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.TrimPrefix(dir+"/"+e.Name(), "/")
		switch {
		case e.IsDir() && f.IsReplicated(name+"/"):
			if all, err = f.appendFileNamesIn(all, name); err != nil {
				return nil, err
			}
		case e.Type().IsRegular() && f.IsReplicated(name):
			all = append(all, name)
		}
	}
	return all, nil
}

// scanFiles returns the replicated files. It reads the files that changed since the last scan, and calls give with each
// of their pieces. A file that is being written may be incomplete; the next scan reads the file again.
func (f *ReplicatedFolder) scanFiles(now time.Time, give func(PieceHash, []byte)) ([]replicatedFile, error) {
	names, err := f.fileNames()
	if err != nil {
		return nil, err
	}
	var all []replicatedFile
	fresh := map[string]scannedFile{}
	for _, name := range names {
		x, is, err := f.scanFile(now, name, give)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the state folder: %w", err)
		}
		fresh[name] = scannedFile{is, x}
		all = append(all, x)
	}
	f.scannedFileByName = fresh
	return all, nil
}

func (f *ReplicatedFolder) scanFile(now time.Time, name string, give func(PieceHash, []byte)) (replicatedFile,
	store.FileStamp,
	error) {
	info, err := f.Disk.Lstat(f.localPath(name))
	if err != nil {
		return replicatedFile{}, store.FileStamp{}, err
	}
	is := store.FileStampOf(info)
	if was, known := f.scannedFileByName[name]; known && was.stamp == is && !info.ModTime().IsZero() &&
		is.IsConclusive(now) {
		return was.file, is, nil
	}
	content, err := f.Disk.ReadFile(f.localPath(name))
	if err != nil {
		return replicatedFile{}, is, err
	}
	x := replicatedFile{Name: name, Size: int64(len(content))}
	if len(content) <= inlineSize {
		x.Data = content
		return x, is, nil
	}
	sums, parts := splitIntoPieces(content)
	for i, s := range sums {
		give(s, parts[i])
	}
	x.Pieces = sums
	return x, is, nil
}

// pieceFetcher returns a piece with the given hash.
type pieceFetcher func(context.Context, PieceHash) ([]byte, error)

// restoreFiles replaces the replicated files of the folder with the given files.
func (f *ReplicatedFolder) restoreFiles(ctx context.Context, files []replicatedFile, now time.Time,
	get pieceFetcher) error {
	are := map[string]replicatedFile{}
	here, err := f.scanFiles(now, func(PieceHash, []byte) {})
	if err != nil {
		return err
	}
	for _, x := range here {
		are[x.Name] = x
	}
	for _, x := range files {
		is, there := are[x.Name]
		delete(are, x.Name)
		if there && is.Size == x.Size && bytes.Equal(is.Data, x.Data) && slices.Equal(is.Pieces, x.Pieces) {
			continue
		}
		if err := f.writeFileFromPieces(ctx, x, get); err != nil {
			return fmt.Errorf("cannot restore from the state store: %w", err)
		}
	}
	for name := range are {
		if f.isExternalFile(name) {
			continue // Keep a file that is not committed yet.
		}
		if err := f.Disk.Remove(f.localPath(name)); err != nil {
			return fmt.Errorf("cannot remove a file from the state folder: %w", err)
		}
	}
	return nil
}

func (f *ReplicatedFolder) isExternalFile(name string) bool {
	_, is := f.ExternalPathByName[name]
	return is
}

func (f *ReplicatedFolder) writeFileFromPieces(ctx context.Context, x replicatedFile, get pieceFetcher) error {
	if !f.isExternalFile(x.Name) && (!filepath.IsLocal(filepath.FromSlash(x.Name)) || !f.IsReplicated(x.Name)) {
		return fmt.Errorf("unknown file %q: a later program version wrote it; update this replica to that version "+
			"first",
			x.Name)
	}
	content := bytes.Clone(x.Data)
	for _, s := range x.Pieces {
		piece, err := get(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", x.Name, err)
		}
		content = append(content, piece...)
	}
	if int64(len(content)) != x.Size {
		return fmt.Errorf("the file %s from the state store has %d bytes, want %d", x.Name, len(content), x.Size)
	}
	if err := f.makeParents(x.Name); err != nil {
		return err
	}
	return f.Disk.WriteFileDurably(f.localPath(x.Name), content, 0o600)
}

// makeParents creates the folders between Dir and a file in it.
func (f *ReplicatedFolder) makeParents(name string) error {
	for i, r := range name {
		if r == '/' && !f.isExternalFile(name) {
			if err := f.Disk.MakeDir(f.localPath(name[:i])); err != nil {
				return err
			}
		}
	}
	return nil
}
