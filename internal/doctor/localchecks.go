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

// Target is a daemon that the doctor examines.
type Target struct {
	Program         string
	Federation      string // name of the federation; empty if the daemon has only one federation
	StateDir        string
	NeededFreeBytes int64 // number of bytes that should be free for the state folder
	// FindAnnouncement checks whether a broker has an announcement that the daemon accepts. FindAnnouncement is nil for
	// the coordinator.
	FindAnnouncement func(ctx context.Context, url string) Finding
	// CheckData checks the data. It is nil for a daemon without data, and is called after FindAnnouncement.
	CheckData func(ctx context.Context) []Finding
	// CheckCluster checks the daemon's cluster. It also reports whether another replica has the broker session.
	// CheckCluster is nil for a daemon without a cluster.
	CheckCluster func(ctx context.Context) (found []Finding, taken bool)
	Broker       BrokerTarget
	SiteBroker   *BrokerTarget // broker that delivers sensor readings; nil if the daemon uses none
}

// checkStateFolder checks the state folder and reports whether the daemon is running. If the daemon has run before and
// is not running now, it also returns the folder's lock. It creates no files, because the daemon's user could not use
// files that belong to root.
func (p *Target) checkStateFolder(r *findingReporter) (lock *store.StateFolderLock, runs bool) {
	info, err := os.Stat(p.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.addGoodFinding("state folder", "%s does not exist yet; the program creates it at the first start", p.StateDir)
		return nil, false
	case err != nil:
		r.addFinding("state folder", Bad, "run the doctor command as root or as the user of the service", "%v", err)
		return nil, false
	case !info.IsDir():
		r.addFinding("state folder", Bad, "set state_dir to the path of a folder", "%s is not a folder", p.StateDir)
		return nil, false
	}
	if _, err = os.Stat(filepath.Join(p.StateDir, store.LockFile)); err == nil {
		lock, err = store.LockStateFolder(p.StateDir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // no daemon has ever been started with this folder
	case errors.Is(err, fs.ErrPermission):
		r.addFinding("state folder", Bad, "run the doctor command as root or as the user of the service", "%v", err)
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
		r.addFinding("state folder", Bad, "allow the service's user to write to the folder, or free some disk space",
			"%v", err)
	case known && free < p.NeededFreeBytes:
		r.addFinding("state folder", Warn, "free some disk space: models, updates and the history are stored in this "+
			"folder",
			"the disk of %s has %s of free space, but %s may be needed",
			p.StateDir, formatBytes(free), formatBytes(p.NeededFreeBytes))
	case known:
		r.addGoodFinding("state folder", "%s is writable, and its disk has %s of free space", p.StateDir,
			formatBytes(free))
	default:
		r.addGoodFinding("state folder", "%s is writable", p.StateDir)
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

// BuildCommitTime returns the commit time of this build, which is a lower bound for the current time. It returns the
// zero time if the commit time is unknown.
func BuildCommitTime() (at time.Time) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				at, _ = time.Parse(time.RFC3339, s.Value) // the zero time if the value is invalid
			}
		}
	}
	return at
}

func checkClock(r *findingReporter, now time.Time) {
	if built := BuildCommitTime(); now.Before(built) {
		r.addFinding("clock", Bad,
			"set the clock, and synchronise it with NTP (apt install systemd-timesyncd): certificates and monthly "+
				"budgets depend on it",
			"the system time is %s, which is before this program was built (%s)", now.UTC().Format(time.DateTime),
			built.UTC().Format(time.DateTime))
		return
	}
	if _, err := os.Stat("/run/systemd/timesync"); err == nil {
		if _, err := os.Stat("/run/systemd/timesync/synchronized"); err != nil {
			r.addFinding("clock", Warn, "run `timedatectl timesync-status`",
				"the system time is %s, but NTP has not synchronised the clock since the system started",
				now.UTC().Format(time.DateTime))
			return
		}
	}
	r.addGoodFinding("clock", "the system time is %s UTC", now.UTC().Format(time.DateTime))
}
