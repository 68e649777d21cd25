package store

import (
	"errors"
	"fmt"
	"io/fs"
)

var (
	// ErrNoRecord says that there is no file where LoadRecord looked: a first start, not damage.
	ErrNoRecord = errors.New("no record")
	// ErrLocked says that another process holds the state folder.
	ErrLocked = errors.New("state folder is in use")
	// ErrDigestConflict says that something else is already stored durably under this name.
	ErrDigestConflict = errors.New("already stored with another digest")
	// ErrClosed says that the spool or the ring was closed.
	ErrClosed = errors.New("it is closed")
	// ErrNoModel says that the folder holds no model of that version, or none at all.
	ErrNoModel = errors.New("no such model")
)

// CorruptError says that a file is torn, flipped, or not what its name claims. The remedy differs from file to
// file: the code that shows the error to a person adds it.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("store: %s is damaged (%s)", e.Path, e.Reason)
}

// FormatVersionError says that a file is sound and of a format that this program does not read: a newer or a much older
// one wrote it.
type FormatVersionError struct {
	Path                          string
	FileVersion, SupportedVersion uint16
}

func (e *FormatVersionError) Error() string {
	return fmt.Sprintf("store: %s has format version %d, this program reads version %d", e.Path, e.FileVersion,
		e.SupportedVersion)
}

// IsTransientWriteError reports whether a write failed for want of something that may come
// back while the program runs: space, a quota, a file system that takes writes, or
// access to the folder. The same write can then be tried again.
func IsTransientWriteError(err error) bool {
	return isNoSpaceError(err) || isReadOnlyError(err) || errors.Is(err, fs.ErrPermission)
}

// IsDamage reports whether an error is about the content of a file, so that a retry cannot help, and not about the
// disk.
func IsDamage(err error) bool {
	return errors.As(err, new(*CorruptError)) || errors.As(err, new(*FormatVersionError))
}

// IsMissingOrDamaged reports whether a file is damaged or missing.
func IsMissingOrDamaged(err error) bool {
	return IsDamage(err) || errors.Is(err, ErrNoRecord) || errors.Is(err, ErrNoModel)
}

// explainFileError wraps a failed operation with the path and with what the operator can do about it. The original
// error stays reachable through errors.Is.
func explainFileError(action, path string, err error) error {
	var advice string
	switch {
	case isNoSpaceError(err):
		advice = "no space left on the device holding it (or a quota or size limit is reached): " +
			"free some space; nothing was changed"
	case isReadOnlyError(err):
		advice = "its file system is read-only: remount it writable or move the state folder; nothing was changed"
	case errors.Is(err, fs.ErrPermission):
		advice = "permission denied: give the daemon's user access to the folder; nothing was changed"
	case errors.Is(err, fs.ErrNotExist):
		advice = "it or its folder does not exist: create the folder, or correct the path"
	default:
		return fmt.Errorf("store: %s %s: %w", action, path, err)
	}
	return fmt.Errorf("store: %s %s: %s: %w", action, path, advice, err)
}
