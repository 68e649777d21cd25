package daemon

import "runtime/debug"

// Version returns the version of this build, as recorded by the Go tool.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown)"
	}
	return info.Main.Version
}
