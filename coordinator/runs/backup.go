package runs

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// A backup is a tar archive of the state folder at one moment. It omits the updates of the current round, which agents
// send again. The slot files are read on the owner goroutine, so that they are consistent with each other. Archived
// models do not change.

// ReadSlotFiles returns the slot files for a backup. It must be called on the owner goroutine, so that the files are
// consistent.
func (d *StateFolder) ReadSlotFiles() (all []BackupFile, err error) {
	for _, name := range slotFileNames() {
		data, failed := d.Disk.ReadFile(d.FilePath(name))
		if errors.Is(failed, fs.ErrNotExist) {
			continue
		}
		all, err = append(all, BackupFile{name, data}), errors.Join(err, failed)
	}
	return all, err
}

// BackupFile is a file of the state folder that was read for a backup.
type BackupFile struct {
	name string
	data []byte
}

// WriteBackup writes a backup that contains the given slot files. It may run concurrently with the owner goroutine.
func (d *StateFolder) WriteBackup(w io.Writer, slots []BackupFile) error {
	t := tar.NewWriter(w)
	for _, f := range slots {
		if err := addTarFile(t, f.name, f.data); err != nil {
			return err
		}
	}
	if err := d.backUpHistoryAndModels(t); err != nil {
		return err
	}
	return t.Close()
}

// slotFileNames returns the names of the slot files, which are overwritten in place.
func slotFileNames() (all []string) {
	for _, f := range []*store.StateFile{Journal, Control, Task, Model} {
		all = append(all, f.Name+".a", f.Name+".b")
	}
	return all
}

// addTarFile adds a file to the archive. Its time is constant, so that equal folders yield equal archives.
func addTarFile(t *tar.Writer, name string, data []byte) error {
	err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: time.Unix(0, 0),
		Typeflag: tar.TypeReg})
	if err == nil {
		_, err = t.Write(data)
	}
	return err
}

// backUpHistoryAndModels adds the history, the audit log, the root documents and the archived models. It skips models
// that are removed concurrently.
func (d *StateFolder) backUpHistoryAndModels(t *tar.Writer) error {
	names := []string{historyFile}
	logs, err := audit.FileNames(d.Disk, d.Dir)
	if err != nil {
		return err
	}
	for _, name := range logs {
		names = append(names, path.Join(audit.Folder, name))
	}
	all, err := d.Disk.ReadDir(d.Dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		if isRootDocumentFile(e.Name()) {
			names = append(names, e.Name())
		}
	}
	runs, err := d.StoredRunIDs()
	if err != nil {
		return err
	}
	for _, run := range runs {
		entries, err := d.Disk.ReadDir(d.runPath(run))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if name := path.Join(ModelsDir, fmt.Sprint(run), e.Name()); BelongsToBackup(name) {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		data, err := d.Disk.ReadFile(d.FilePath(filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = addTarFile(t, name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxRestored is the maximum size of a file in a backup, in bytes.
const maxRestored = 1 << 32

// RestoreBackup restores a backup into a state folder and raises the epoch: see RaiseEpoch. The folder must be missing,
// be empty, or belong to a coordinator that refused to start without its run. Files that the backup replaces are
// renamed; other files are kept. After an error the folder may contain a part of the backup.
func RestoreBackup(dir string, backup io.Reader) (wire.AnnouncementPosition, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.AnnouncementPosition{}, err
	}
	if _, found, err := NewStateFolder(store.LocalDisk, dir).LoadJournalRecord(); found || err != nil {
		return wire.AnnouncementPosition{},
			errors.Join(fmt.Errorf("state folder %s contains a run: restore into a new folder, "+
				"or empty this one if it is left over from an interrupted restore", dir), err)
	}
	isState := slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return slices.Contains(slotFileNames(), e.Name())
	})
	for _, e := range entries {
		switch {
		case e.Name() == store.LockFile:
		case !isState:
			return wire.AnnouncementPosition{},
				fmt.Errorf("the folder %s is not empty (%s) and is not a state folder: choose a new "+
					"folder", dir, e.Name())
		case BelongsToBackup(e.Name()), BelongsToBackup(e.Name() + "/"):
			if _, err := store.LocalDisk.SetAsideFile(filepath.Join(dir, e.Name())); err != nil {
				return wire.AnnouncementPosition{}, err
			}
		}
	}
	t := tar.NewReader(backup)
	for found := 0; ; found++ {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF) && found > 0:
			return RaiseEpoch(dir)
		case errors.Is(err, io.EOF):
			return wire.AnnouncementPosition{}, errors.New("the backup is empty")
		case err == nil && !isBackupEntry(h):
			err = fmt.Errorf("unexpected file %q", h.Name)
		case err == nil:
			err = restoreBackupFile(dir, h, t)
		}
		if err != nil {
			return wire.AnnouncementPosition{}, fmt.Errorf("cannot restore the backup: %w", err)
		}
	}
}

// isBackupEntry reports whether WriteBackup can have written an archive entry. Other entries are rejected.
func isBackupEntry(h *tar.Header) bool {
	if h.Typeflag != tar.TypeReg || h.Size < 0 || h.Size > maxRestored || !filepath.IsLocal(h.Name) ||
		path.Clean(h.Name) != h.Name {
		return false
	}
	return BelongsToBackup(h.Name)
}

// BelongsToBackup reports whether backups contain a file of the state folder. name is its path with slashes. If name
// ends with a slash, it reports whether backups contain files of that folder.
func BelongsToBackup(name string) bool {
	if name == historyFile || isRootDocumentFile(name) || slices.Contains(slotFileNames(), name) {
		return true
	}
	parts := strings.Split(name, "/")
	if strings.HasPrefix(path.Base(name), ".") { // temporary file of a write in progress
		return false
	}
	return len(parts) == 3 && parts[0] == ModelsDir || len(parts) == 2 && (parts[0] == audit.Folder ||
		name == ModelsDir+"/")
}

func restoreBackupFile(dir string, h *tar.Header, r io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(r, h.Size))
	if err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.FromSlash(h.Name))
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	return store.LocalDisk.WriteFileDurably(name, data, 0o600)
}
