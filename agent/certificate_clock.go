package agent

import (
	"fmt"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// CertificateClock is the time of day by which a device holds certificates: its machine's, but never before the latest
// time that the coordinator has signed, or that the program was built. So a machine that begins in 1970 reaches a
// broker with TLS. It may be used from several goroutines.
type CertificateClock struct {
	machine func() time.Time
	minTime time.Time

	mu         sync.Mutex
	floor      time.Time
	floorSetAt time.Time // when it was set, by a clock that nobody sets
}

// NewCertificateClock returns a clock that says no time before least. machine is time.Now unless set.
func NewCertificateClock(least time.Time, machine func() time.Time) *CertificateClock {
	if machine == nil {
		machine = time.Now
	}
	return &CertificateClock{machine: machine, minTime: least, floor: least, floorSetAt: time.Now()}
}

// Now returns the time.
func (c *CertificateClock) Now() time.Time {
	_, is := c.machineAndEffectiveTime()
	return is
}

// machineAndEffectiveTime returns what the machine's clock says, and the time.
func (c *CertificateClock) machineAndEffectiveTime() (machine, is time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	machine = c.machine()
	if is = c.floor.Add(time.Since(c.floorSetAt)); is.Before(machine) {
		is = machine
	}
	return machine, is
}

// raise sets the floor to a later time.
func (c *CertificateClock) raise(t time.Time) {
	if _, is := c.machineAndEffectiveTime(); t.After(is) {
		c.set(t)
	}
}

// reset forgets what the coordinator has signed.
func (c *CertificateClock) reset() { c.set(c.minTime) }

func (c *CertificateClock) set(floor time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor, c.floorSetAt = floor, time.Now()
}

const (
	// clockSaveInterval is how far the time on the disk may be behind: a flash is not written at each announcement.
	clockSaveInterval = time.Hour
	// minReportedClockLag is from when on a machine's clock is behind, and not only a little slow.
	minReportedClockLag = 5 * time.Minute
)

// savedClock is the time on the disk, in seconds of Unix time. It counts for one root document: a thief of the
// coordinator's key may have signed any time, and the next root document ends that, too.
type savedClock struct {
	root             wire.RootVersion
	latestSignedTime uint64
}

// loadClock sets the floor of the clock to the time on the disk.
func loadClock(c *Config, root wire.RootVersion) (k savedClock, err error) {
	if c.Clock == nil {
		return k, nil
	}
	err = c.state().Load(state.Clock, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("%d bytes, want 12", len(b))
		}
		if r := wire.RootVersion(littleEndian.Uint32(b)); r == root {
			k = savedClock{r, littleEndian.Uint64(b[4:])}
		}
		return nil
	})
	c.Clock.raise(announcementTime(k.latestSignedTime))
	return k, err
}

func saveClock(c *Config, k savedClock) error {
	b := littleEndian.AppendUint64(littleEndian.AppendUint32(nil, uint32(k.root)), k.latestSignedTime)
	return c.state().Save(state.Clock, b)
}

// announcementTime is a time that an announcement tells. After the end of the year 9999 there is none.
func announcementTime(issued uint64) time.Time { return time.Unix(int64(min(issued, 253402300799)), 0) }

// noteSignedTime takes the latest time that the coordinator has signed.
func (a *Agent) noteSignedTime(issued uint64) {
	if a.cfg.Clock == nil {
		return
	}
	a.cfg.Clock.raise(announcementTime(issued))
	k := savedClock{a.trust.version(), issued}
	if was := a.keptTime; was.root == k.root &&
		k.latestSignedTime < was.latestSignedTime+uint64(clockSaveInterval/time.Second) {
		return
	}
	a.keptTime = k // until another is due, or the next start
	a.writes.Start(state.Write{Purpose: clockWrite, Do: func() error { return saveClock(&a.cfg, k) }})
}

// reportClockBehind tells when the machine's clock is behind, and when it is so no more.
func (a *Agent) reportClockBehind() {
	if a.cfg.Clock == nil {
		return
	}
	machine, is := a.cfg.Clock.machineAndEffectiveTime()
	if behind := is.Sub(machine) > minReportedClockLag; behind != a.clockBehindReported {
		if a.clockBehindReported = behind; !behind {
			is = time.Time{}
		}
		a.cfg.Observer.Observe(ClockBehind{Machine: machine, UsedTime: is})
	}
}

// ClockBehind: the machine's clock is behind the time with which the agent checks certificates. UsedTime is zero when
// the clock is right again.
type ClockBehind struct{ Machine, UsedTime time.Time }

// Describe implements observe.Event.
func (e ClockBehind) Describe(d *observe.Description) {
	const condition, remedy = "clock", "set the machine's clock, and keep it right with NTP"
	if e.UsedTime.IsZero() {
		d.Log(observe.Info, "the machine's clock is right again")
		d.Resolve(condition)
		return
	}
	machine, used := e.Machine.UTC().Format(time.DateTime), e.UsedTime.UTC().Format(time.DateTime)
	d.Log(observe.Warn, "clock is behind", "machine", machine, "used_for_certificates", used)
	d.Fail(condition, fmt.Sprintf("clock is behind: using %s UTC for certificates, the time that the coordinator has "+
		"signed or of this program's build, since the machine says %s", used, machine), remedy)
}
