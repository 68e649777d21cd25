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

// CertificateClock is the clock with which a device checks certificates. It returns the time of the machine's clock, or
// a floor if that is later: the time when the program was built, or the latest time that the coordinator has signed.
// So a machine whose clock starts in 1970 can connect to a broker with TLS. It may be used from several goroutines.
type CertificateClock struct {
	readMachineClock func() time.Time
	minTime          time.Time

	mu         sync.Mutex
	floorTime  time.Time // the earliest possible time at floorSetAt
	floorSetAt time.Time // by the monotonic clock
}

// NewCertificateClock returns a clock that is never earlier than minTime. If machine is nil, it is time.Now.
func NewCertificateClock(minTime time.Time, machine func() time.Time) *CertificateClock {
	if machine == nil {
		machine = time.Now
	}
	return &CertificateClock{readMachineClock: machine, minTime: minTime, floorTime: minTime, floorSetAt: time.Now()}
}

// Now returns the time.
func (c *CertificateClock) Now() time.Time {
	_, now := c.machineAndCertificateTime()
	return now
}

// machineAndCertificateTime returns the time of the machine's clock, and the time with which certificates are checked.
func (c *CertificateClock) machineAndCertificateTime() (machine, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	machine = c.readMachineClock()
	if now = c.floorTime.Add(time.Since(c.floorSetAt)); now.Before(machine) {
		now = machine
	}
	return machine, now
}

// raiseFloor sets the floor to a time, if the clock is earlier.
func (c *CertificateClock) raiseFloor(t time.Time) {
	if t.After(c.Now()) {
		c.setFloor(t)
	}
}

// forgetCoordinatorTimes forgets the times that the coordinator has signed.
func (c *CertificateClock) forgetCoordinatorTimes() { c.setFloor(c.minTime) }

func (c *CertificateClock) setFloor(floor time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floorTime, c.floorSetAt = floor, time.Now()
}

const (
	// clockSaveInterval is how far the saved time may be behind. It protects flash storage from a write for each
	// announcement.
	clockSaveInterval = time.Hour
	// minReportedClockLag is the lag from which the machine's clock is reported as behind.
	minReportedClockLag = 5 * time.Minute
)

// savedCoordinatorTime is the latest time that the coordinator has signed, as saved in the state folder. It is used
// with one rootVersion of the root document only: whoever stole a key of the coordinator may have signed any time, and
// the next root document ends that.
type savedCoordinatorTime struct {
	root        wire.RootVersion
	unixSeconds uint64 // Unix time
}

// loadCertificateClock raises the clock to the saved time.
func (p *AgentIdentity) loadCertificateClock() error {
	if p.cfg.Clock == nil {
		return nil
	}
	err := p.core.StateFolder.LoadFile(state.Clock, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("%d bytes, want 12", len(b))
		}
		if root := wire.RootVersion(binary.LittleEndian.Uint32(b)); root == p.trust.rootVersion() {
			p.savedTime = savedCoordinatorTime{root, binary.LittleEndian.Uint64(b[4:])}
		}
		return nil
	})
	p.cfg.Clock.raiseFloor(coordinatorTimeFromUnix(p.savedTime.unixSeconds))
	return err
}

// coordinatorTimeFromUnix returns a time that the coordinator has signed. The latest one is the end of the year 9999.
func coordinatorTimeFromUnix(seconds uint64) time.Time {
	return time.Unix(int64(min(seconds, 253402300799)), 0)
}

// ReceiveAnnouncement implements part.AnnouncementReceiver. It raises the clock to the time in the announcement, and
// saves the time if the saved one is older by clockSaveInterval.
func (p *AgentIdentity) ReceiveAnnouncement(a agentround.AnnouncementReceived) {
	if p.cfg.Clock == nil {
		return
	}
	seconds := a.Announcement.IssuedAt
	p.cfg.Clock.raiseFloor(coordinatorTimeFromUnix(seconds))
	next, saved := savedCoordinatorTime{p.trust.rootVersion(), seconds}, p.savedTime
	if saved.root != next.root || seconds >= saved.unixSeconds+uint64(clockSaveInterval/time.Second) {
		p.savedTime = next // a write that fails is retried
		p.core.WriteRetrier.StartWrite(state.RetriedWrite{Purpose: "save the coordinator's time",
			WriteFile: func() error {
				b := binary.LittleEndian.AppendUint32(nil, uint32(next.root))
				return p.core.StateFolder.SaveFile(state.Clock, binary.LittleEndian.AppendUint64(b, next.unixSeconds))
			}})
	}
	p.reportClockBehind()
}

// reportClockBehind reports when the machine's clock is found to be behind, and when it is right again.
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

// certificateCheckTime returns the time with which certificates are checked.
func (p *AgentIdentity) certificateCheckTime() time.Time {
	if p.cfg.Clock != nil {
		return p.cfg.Clock.Now()
	}
	return p.core.Loop.Now()
}

// MachineClockBehind: the machine's clock is behind the time with which the agent checks certificates. UsedTime is zero
// when the clock is right again.
type MachineClockBehind struct{ Machine, UsedTime time.Time }

// Describe implements observe.Event.
func (e MachineClockBehind) Describe(d *observe.EventDescription) {
	const condition, remedy = "clock", "set the machine's clock, and keep it right with NTP"
	if e.UsedTime.IsZero() {
		d.Log(observe.Info, "the machine's clock is right again")
		d.ResolveCondition(condition)
		return
	}
	machine, used := e.Machine.UTC().Format(time.DateTime), e.UsedTime.UTC().Format(time.DateTime)
	d.Log(observe.Warn, "clock is behind", "machine", machine, "used_for_certificates", used)
	d.RaiseCondition(condition,
		fmt.Sprintf("clock is behind: using %s UTC for certificates, the time that the coordinator has "+
			"signed or of this program's build, since the machine says %s", used, machine), remedy)
}
