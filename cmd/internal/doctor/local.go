package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/fedmesh/fedmesh/store"
)

// Target is a daemon as the doctor sees it.
type Target struct {
	Program  string
	StateDir string
	Needs    int64          // bytes that the folder should have room for
	Data     func() error   // reads the data; nil for a daemon without
	Broker   BrokerExamined // with which session, and on which topics
}

// folder examines the state folder. It returns its lock, if the daemon has ever
// run and does not now, and whether it runs. Nothing is left behind: what root
// leaves, the daemon's user could not use.
func (p *Target) folder(r *report) (lock *store.DirLock, runs bool) {
	info, err := os.Stat(p.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.good("state folder", "%s is not there yet: the first start makes it", p.StateDir)
		return nil, false
	case err != nil:
		r.add("state folder", Bad, "run the doctor as root, or as the user of the service", "%v", err)
		return nil, false
	case !info.IsDir():
		r.add("state folder", Bad, "set state_dir to a folder", "%s is no folder", p.StateDir)
		return nil, false
	}
	if _, err = os.Stat(filepath.Join(p.StateDir, store.LockFile)); err == nil {
		lock, err = store.Lock(p.StateDir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // no daemon has started here
	case errors.Is(err, fs.ErrPermission):
		r.add("state folder", Bad, "run the doctor as root, or as the user of the service", "%v", err)
		return nil, false
	case errors.Is(err, store.ErrLocked):
		runs = true
	case err != nil:
		r.add("state folder", Bad, "see the disk", "%v", err)
		return nil, false
	}
	probe := filepath.Join(p.StateDir, ".doctor")
	err = errors.Join(os.WriteFile(probe, make([]byte, 4096), 0o600), os.Remove(probe))
	switch free, known := freeBytes(p.StateDir); {
	case err != nil:
		r.add("state folder", Bad, "let its user write there, or free the disk", "%v", err)
	case known && free < p.Needs:
		r.add("state folder", Warn, "free the disk: models, updates and records are kept there",
			"%s has %s free, less than the %s that may be needed",
			p.StateDir, bytes(free), bytes(p.Needs))
	case known:
		r.good("state folder", "%s can be written, %s are free", p.StateDir, bytes(free))
	default:
		r.good("state folder", "%s can be written", p.StateDir)
	}
	return lock, runs
}

func bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%d bytes", n)
}

// data reads the data.
func (p *Target) data(r *report) {
	if p.Data == nil {
		return
	}
	if err := p.Data(); err != nil {
		r.add("data", Bad, "mend the file, or data.csv", "%v", err)
		return
	}
	r.good("data", "can be read")
}

// clock examines the time of day: nothing here can be older than the program.
func clock(r *report, now time.Time) {
	built := time.Time{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				built, _ = time.Parse(time.RFC3339, s.Value) // else zero, which is before everything
			}
		}
	}
	if now.Before(built) {
		r.add("clock", Bad, "set it, and keep it right with NTP (apt install systemd-timesyncd): certificates and "+
			"months are judged by it",
			"it is %s, before this program was made (%s)", now.UTC().Format(time.DateTime),
			built.UTC().Format(time.DateTime))
		return
	}
	if _, err := os.Stat("/run/systemd/timesync"); err == nil {
		if _, err := os.Stat("/run/systemd/timesync/synchronized"); err != nil {
			r.add("clock", Warn, "see `timedatectl timesync-status`",
				"it is %s, and was not set by NTP since the start of the system", now.UTC().Format(time.DateTime))
			return
		}
	}
	r.good("clock", "it is %s UTC", now.UTC().Format(time.DateTime))
}
