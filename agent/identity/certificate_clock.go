package identity

import (
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// CertificateClock returns the later of the machine's clock and a trusted minimum time, so that TLS works on a machine
// whose clock starts in 1970. It is safe for concurrent use.
type CertificateClock struct {
	readMachineClock func() time.Time
	minTime          time.Time

	mu         sync.Mutex
	floorTime  time.Time // trusted minimum of the current time, as of floorSetAt
	floorSetAt time.Time // time at which floorTime was set, according to the monotonic clock
}

// NewCertificateClock returns a clock that never returns a time before minTime. If machine is nil, it uses time.Now.
func NewCertificateClock(minTime time.Time, machine func() time.Time) *CertificateClock {
	if machine == nil {
		machine = time.Now
	}
	return &CertificateClock{readMachineClock: machine, minTime: minTime, floorTime: minTime, floorSetAt: time.Now()}
}

// Now returns the time for checking certificates.
func (c *CertificateClock) Now() time.Time {
	_, now := c.machineAndCertificateTime()
	return now
}

// machineAndCertificateTime returns both the time of the machine's clock and the time for validating certificates.
func (c *CertificateClock) machineAndCertificateTime() (machine, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	machine = c.readMachineClock()
	if now = c.floorTime.Add(time.Since(c.floorSetAt)); now.Before(machine) {
		now = machine
	}
	return machine, now
}

// raiseFloor raises the minimum time to t unless the clock is already later.
func (c *CertificateClock) raiseFloor(t time.Time) {
	if t.After(c.Now()) {
		c.setFloor(t)
	}
}

// forgetCoordinatorTimes resets the minimum time to minTime, which does not depend on times that the coordinator has
// signed.
func (c *CertificateClock) forgetCoordinatorTimes() { c.setFloor(c.minTime) }

func (c *CertificateClock) setFloor(floor time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floorTime, c.floorSetAt = floor, time.Now()
}

const (
	// clockSaveInterval is the maximum difference between the certificate clock and the time saved on disk. It limits
	// the number of writes to flash memory.
	clockSaveInterval = time.Hour
	// minReportedClockLag is the minimum time by which the machine's clock must be behind for the agent to report this.
	minReportedClockLag = 5 * time.Minute
)

// savedCoordinatorTime is the latest time that the coordinator has signed, as saved on disk. A new root document (list
// of trusted keys) invalidates the saved time, because a stolen key may have signed a wrong time.
type savedCoordinatorTime struct {
	root        wire.RootVersion
	unixSeconds uint64 // time signed by the coordinator, as Unix time in seconds
}

// loadCertificateClock raises the certificate clock to the time saved on disk.
func (p *AgentIdentity) loadCertificateClock() error {
	if p.cfg.Clock == nil {
		return nil
	}
	err := p.core.StateFolder.LoadFile(state.Clock, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("the content of the file has %d bytes instead of 12", len(b))
		}
		if root := wire.RootVersion(binary.LittleEndian.Uint32(b)); root == p.trust.rootVersion() {
			p.savedTime = savedCoordinatorTime{root, binary.LittleEndian.Uint64(b[4:])}
		}
		return nil
	})
	p.cfg.Clock.raiseFloor(coordinatorTimeFromUnix(p.savedTime.unixSeconds))
	return err
}

// coordinatorTimeFromUnix converts the Unix time in a coordinator's message. It limits later times to the end of the
// year 9999.
func coordinatorTimeFromUnix(seconds uint64) time.Time {
	return time.Unix(int64(min(seconds, 253402300799)), 0)
}

// ReceiveAnnouncement implements part.AnnouncementReceiver. It raises the certificate clock to the issue time of the
// announcement, and saves this time at most once per clockSaveInterval.
func (p *AgentIdentity) ReceiveAnnouncement(a agentround.AnnouncementReceived) {
	if p.cfg.Clock == nil {
		return
	}
	seconds := a.Announcement.IssuedAt
	p.cfg.Clock.raiseFloor(coordinatorTimeFromUnix(seconds))
	next, saved := savedCoordinatorTime{p.trust.rootVersion(), seconds}, p.savedTime
	if saved.root != next.root || seconds >= saved.unixSeconds+uint64(clockSaveInterval/time.Second) {
		p.savedTime = next // Set the time before the write, which is retried if it fails.
		p.core.WriteRetrier.StartWrite(state.RetriedWrite{Purpose: "save the coordinator's time",
			WriteFile: func() error {
				b := binary.LittleEndian.AppendUint32(nil, uint32(next.root))
				return p.core.StateFolder.SaveFile(state.Clock, binary.LittleEndian.AppendUint64(b, next.unixSeconds))
			}})
	}
	p.reportClockBehind()
}

// reportClockBehind reports when the machine's clock starts or stops lagging behind the certificate clock.
func (p *AgentIdentity) reportClockBehind() {
	if p.cfg.Clock == nil {
		return
	}
	machine, used := p.cfg.Clock.machineAndCertificateTime()
	behind := used.Sub(machine) > minReportedClockLag
	if behind == p.clockBehindReported {
		return
	}
	if p.clockBehindReported = behind; !behind {
		used = time.Time{}
	}
	p.core.Observer.Observe(MachineClockBehind{Machine: machine, UsedTime: used})
}

// certificateCheckTime returns the time for checking certificates.
func (p *AgentIdentity) certificateCheckTime() time.Time {
	if p.cfg.Clock != nil {
		return p.cfg.Clock.Now()
	}
	return p.core.Loop.Now()
}

// MachineClockBehind reports that the machine's clock is behind the time for validating certificates. UsedTime is zero
// when the machine's clock is correct again.
type MachineClockBehind struct{ Machine, UsedTime time.Time }

// Describe implements observe.Event.
func (e MachineClockBehind) Describe(d *observe.EventDescription) {
	const condition, remedy = "clock", "set the system clock, and synchronise it with NTP"
	if e.UsedTime.IsZero() {
		d.Log(observe.Info, "system clock is correct again")
		d.ResolveCondition(condition)
		return
	}
	machine, used := e.Machine.UTC().Format(time.DateTime), e.UsedTime.UTC().Format(time.DateTime)
	d.Log(observe.Warn, "system clock is behind; using a later trusted time for certificates",
		"machine", machine, "used_for_certificates", used)
	d.RaiseCondition(condition,
		fmt.Sprintf("the system clock is behind: certificates are checked for %s UTC (a time signed by the "+
			"coordinator, or the build time of this program), because the system clock shows %s", used, machine),
		remedy)
}
