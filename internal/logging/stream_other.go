//go:build !unix

package logging

import "io"

// ToJournal is false: journald is where systemd is.
func ToJournal(io.Writer) bool { return false }
