//go:build !unix

package logging

import "io"

// IsJournalStream is false: journald is where systemd is.
func IsJournalStream(io.Writer) bool { return false }
