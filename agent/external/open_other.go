//go:build !unix

package external

import "io/fs"

const noFollow = 0

// ours reports whether a file is this user's.
func ours(fs.FileInfo) bool { return true }
