package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// SetAsideFile renames a file durably to an unused name, such as run.aside-1 or model-7.aside-1.record. It returns the
// new name, or "" if the file does not exist. The program continues without the file; an operator can still examine it.
func (d Disk) SetAsideFile(path string) (aside string, err error) {
	if _, err := d.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	ext := filepath.Ext(path)
	for n := 1; ; n++ {
		aside = fmt.Sprintf("%s.aside-%d%s", strings.TrimSuffix(path, ext), n, ext)
		if _, err := d.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err := d.Rename(path, aside); err != nil {
		return "", explainFileError("rename", path, err)
	}
	if err := d.SyncDir(filepath.Dir(path)); err != nil {
		return aside, explainFileError("fsync", filepath.Dir(path), err)
	}
	return aside, nil
}
