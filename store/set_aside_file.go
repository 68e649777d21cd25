package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// SetAsideFile renames a file, durably, to a name that is free: run to run.aside-1, model-7.record to
// model-7.aside-1.record. It returns that name, or "" if there is no such file. The program continues without the
// file, and a person can examine it.
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
