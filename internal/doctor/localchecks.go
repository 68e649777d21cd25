package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/fedmesh/fedmesh/store"
)

// Target is a daemon for the doctor to examine.
type Target struct {
	Program         string
	Federation      string // which one of the daemon's; empty if there is one
	StateDir        string
	NeededFreeBytes int64 // bytes that should be free for the folder
	// FindAnnouncement examines whether a broker has an announcement of the coordinator that the daemon accepts; nil
	// for the coordinator.
	FindAnnouncement func(ctx context.Context, url string) Finding
	// CheckData examines the data; nil for a daemon without data. It is called after Announced.
	CheckData func(ctx context.Context) []Finding
	// CheckCluster examines with whom the daemon takes turns, and reports whether another one has the session at the
	// broker; nil for one that is alone.
	CheckCluster func(ctx context.Context) (found []Finding, taken bool)
	Broker       BrokerTarget
	SiteBroker   *BrokerTarget // which the daemon only reads; nil if there is none
}

// checkStateFolder examines the state folder. It returns whether the daemon runs, and the folder's lock if the daemon
// has run before and does not run now. It leaves no files, because the daemon's user could not use those of root.
func (p *Target) checkStateFolder(r *findingReporter) (lock *store.StateFolderLock, runs bool) {
	info, err := os.Stat(p.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.addGoodFinding("state folder", "%s does not exist yet: the first start makes it", p.StateDir)
		return nil, false
	case err != nil:
		r.addFinding("state folder", Bad, "run the doctor as root, or as the user of the service", "%v", err)
		return nil, false
	case !info.IsDir():
		r.addFinding("state folder", Bad, "set state_dir to a folder", "%s is not a folder", p.StateDir)
		return nil, false
	}
	if _, err = os.Stat(filepath.Join(p.StateDir, store.LockFile)); err == nil {
		lock, err = store.LockStateFolder(p.StateDir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // no daemon has started here
	case errors.Is(err, fs.ErrPermission):
		r.addFinding("state folder", Bad, "run the doctor as root, or as the user of the service", "%v", err)
		return nil, false
	case errors.Is(err, store.ErrLocked):
		runs = true
	case err != nil:
		r.addFinding("state folder", Bad, "check the disk", "%v", err)
		return nil, false
	}
	probe := filepath.Join(p.StateDir, ".doctor")
	err = errors.Join(os.WriteFile(probe, make([]byte, 4096), 0o600), os.Remove(probe))
	switch free, known := store.FreeDiskBytes(p.StateDir); {
	case err != nil:
		r.addFinding("state folder", Bad, "let the service's user write there, or free disk space", "%v", err)
	case known && free < p.NeededFreeBytes:
		r.addFinding("state folder", Warn, "free disk space: models, updates and records are kept there",
			"%s has %s free, less than the %s that may be needed",
			p.StateDir, formatBytes(free), formatBytes(p.NeededFreeBytes))
	case known:
		r.addGoodFinding("state folder", "%s can be written, %s are free", p.StateDir, formatBytes(free))
	default:
		r.addGoodFinding("state folder", "%s can be written", p.StateDir)
	}
	return lock, runs
}

func formatBytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d bytes", n)
}

// BuildCommitTime returns the time of the commit that this program was built from, which is before any time at which it
// runs. It is zero if the build does not tell.
func BuildCommitTime() (at time.Time) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				at, _ = time.Parse(time.RFC3339, s.Value) // else zero, which is before everything
			}
		}
	}
	return at
}

// checkClock examines the system time.
func checkClock(r *findingReporter, now time.Time) {
	if built := BuildCommitTime(); now.Before(built) {
		r.addFinding("clock", Bad,
			"set it, and keep it right with NTP (apt install systemd-timesyncd): certificates and "+
				"monthly budgets depend on it",
			"it is %s, before this program was built (%s)", now.UTC().Format(time.DateTime),
			built.UTC().Format(time.DateTime))
		return
	}
	if _, err := os.Stat("/run/systemd/timesync"); err == nil {
		if _, err := os.Stat("/run/systemd/timesync/synchronized"); err != nil {
			r.addFinding("clock", Warn, "see `timedatectl timesync-status`",
				"it is %s, and NTP has not set it since the system started", now.UTC().Format(time.DateTime))
			return
		}
	}
	r.addGoodFinding("clock", "it is %s UTC", now.UTC().Format(time.DateTime))
}
