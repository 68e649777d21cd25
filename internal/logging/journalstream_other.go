//go:build !unix

package logging

import "io"

// IsJournalStream returns false, because journald requires systemd.
func IsJournalStream(io.Writer) bool { return false }
