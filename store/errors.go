package store

import (
	"errors"
	"fmt"
	"io/fs"
)

var (
	// ErrNoRecord reports that the record file does not exist, as on a first start.
	ErrNoRecord = errors.New("no record")
	// ErrLocked reports that another process has locked the state folder.
	ErrLocked = errors.New("state folder is in use")
	// ErrDigestConflict reports that different content is already stored under the same name.
	ErrDigestConflict = errors.New("different content is already stored under this name")
	// ErrClosed reports that the spool or the ring is closed.
	ErrClosed = errors.New("already closed")
	// ErrNoModel reports that the folder does not contain the requested model, or any model.
	ErrNoModel = errors.New("no such model")
)

// CorruptError reports that a file is torn, corrupted or does not match its name. The remedy depends on the file, so
// the caller adds it to the message.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("store: %s is damaged (%s)", e.Path, e.Reason)
}

// FormatVersionError reports that a valid file has a format version that this program cannot read.
type FormatVersionError struct {
	Path                          string
	FileVersion, SupportedVersion uint16
}

func (e *FormatVersionError) Error() string {
	return fmt.Sprintf("store: %s has format version %d, but this program reads version %d", e.Path, e.FileVersion,
		e.SupportedVersion)
}

// IsTransientWriteError reports whether a failed write may succeed later without a restart. Examples are a full disk,
// an exceeded quota, a read-only file system and missing access rights.
func IsTransientWriteError(err error) bool {
	return isNoSpaceError(err) || isReadOnlyError(err) || errors.Is(err, fs.ErrPermission)
}

// IsDamage reports whether err is caused by the content of a file rather than by the disk. In this case a retry cannot
// help.
func IsDamage(err error) bool {
	return errors.As(err, new(*CorruptError)) || errors.As(err, new(*FormatVersionError))
}

// IsMissingOrDamaged reports whether err means that a file is missing or damaged.
func IsMissingOrDamaged(err error) bool {
	return IsDamage(err) || errors.Is(err, ErrNoRecord) || errors.Is(err, ErrNoModel)
}

// explainFileError wraps the error of a file operation with the path and with advice for the operator. errors.Is still
// finds the original error.
func explainFileError(action, path string, err error) error {
	var advice string
	switch {
	case isNoSpaceError(err):
		advice = "no space left on the device (or a quota or size limit is reached): free some space; " +
			"nothing was changed"
	case isReadOnlyError(err):
		advice = "the file system is read-only: remount it writable or move the state folder; nothing was changed"
	case errors.Is(err, fs.ErrPermission):
		advice = "permission denied: give the daemon's user access to the folder; nothing was changed"
	case errors.Is(err, fs.ErrNotExist):
		advice = "the file or its folder does not exist: create the folder, or correct the path"
	default:
		return fmt.Errorf("store: %s %s: %w", action, path, err)
	}
	return fmt.Errorf("store: %s %s: %s: %w", action, path, advice, err)
}
