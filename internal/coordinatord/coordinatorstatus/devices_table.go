package coordinatorstatus

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// The states of a device in the list.
const (
	deviceTraining = "training"   // at work in the open round
	devicePresent  = "present"    // it may be drawn
	deviceUnfit    = "unfit"      // it cannot do the task
	deviceSitsOut  = "sits out"   // it failed in a round
	deviceAbsent   = "absent"     // it was there before
	deviceNever    = "never seen" // as far as this state folder and the broker know
)

// helloGraceSeconds is how many seconds after its presence a device that accepts the announcement has said hello.
const helloGraceSeconds = 60

// connectedOnlyReason describes a device that has a session at the broker and does not answer the announcement.
const connectedOnlyReason = "connected, but it does not answer the announcement: it has another coordinator_key, " +
	"or the " +
	"broker's access rules withhold the announcement; `agentd status` on the device says which"

// neverSeenAdvice is the advice about devices that have sent no message.
const neverSeenAdvice = "nothing has arrived from the devices that were never seen: start agentd on them; where it " +
	"runs, " +
	"`agentd status` says whether the federation's name, broker.url or the broker's access rules are the cause"

// DeviceStates are all states, in the order of a sorted list.
var DeviceStates = []string{deviceTraining, devicePresent, deviceUnfit, deviceSitsOut, deviceAbsent, deviceNever}

// Device is a line of the list of devices.
type Device struct {
	Agent           string     `json:"agent"`
	State           string     `json:"state"`
	StateReason     string     `json:"why,omitempty"`
	UnfitColumn     string     `json:"column,omitempty"` // of its data, if it is unfit for them
	UnfitLocation   string     `json:"where,omitempty"`  // file and line, or topic
	LastSeen        *time.Time `json:"last_seen,omitempty"`
	ProgramVersion  string     `json:"version,omitempty"` // of its program
	RootVersion     uint32     `json:"root,omitempty"`    // version of the root document that it goes by
	Rows            uint64     `json:"rows"`
	WorkedRounds    uint64     `json:"rounds"`   // that it has worked in
	AcceptedUpdates uint64     `json:"accepted"` // updates
	FailedRounds    uint64     `json:"failed"`   // rounds
	LeftOutUpdates  uint32     `json:"left_out"` // accepted updates that no model has, since the coordinator's start
	ClippedUpdates  uint32     `json:"clipped"`  // accepted updates of which models have a part, likewise
	// Where it is known:
	SecondsPerLocalStep *float64 `json:"step_time,omitempty"`        // seconds
	MonthTrafficBytes   *float64 `json:"bytes_this_month,omitempty"` // of its budget, or else as its reports count
	BatteryRatio        *float64 `json:"battery,omitempty"`          // from 0 to 1
	Temperature         *float64 `json:"temperature,omitempty"`      // °C
}

// Devices is the list of the devices of a federation.
type Devices struct {
	GeneratedAt          time.Time      `json:"at"`
	ListedAgentsInEffect int            `json:"listed"` // in the list of keys that is in effect
	AgentsInListFile     int            `json:"named"`  // in its file now
	CountByState         map[string]int `json:"states"` // of all of them
	Devices              []*Device      `json:"devices"`
}

// ListDevices returns the enrolled devices that are in one of the states, or all of them if no state is given, in the
// order of a key of DeviceSortKeys.
func (v *StatusTracker) ListDevices(enrolled []wire.AgentID, states []string, by string) (*Devices, error) {
	for _, s := range states {
		if !slices.Contains(DeviceStates, s) {
			return nil, fmt.Errorf("there is no state %q: use %s", s, strings.Join(DeviceStates, ", "))
		}
	}
	name, descending := strings.CutPrefix(by, "-")
	order, ok := deviceCompareByKey[cmp.Or(name, "agent")]
	if !ok {
		return nil, fmt.Errorf("the list cannot be sorted by %q: use %s", name, strings.Join(DeviceSortKeys(), ", "))
	}
	l := v.describeDevices(enrolled, states)
	slices.SortFunc(l.Devices, func(a, b *Device) int {
		if descending {
			a, b = b, a
		}
		return cmp.Or(order(a, b), cmp.Compare(a.Agent, b.Agent))
	})
	return l, nil
}

func (v *StatusTracker) describeDevices(enrolled []wire.AgentID, states []string) *Devices {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.now()
	l := &Devices{GeneratedAt: now, ListedAgentsInEffect: v.current.EnrolledAgents, AgentsInListFile: len(enrolled),
		CountByState: map[string]int{},
		Devices:      []*Device{}}
	month := monthNumber(now)
	for _, id := range enrolled {
		x := v.describeDevice(id, month)
		l.CountByState[x.State]++
		if len(states) == 0 || slices.Contains(states, x.State) {
			l.Devices = append(l.Devices, x)
		}
	}
	return l
}

// describeDevice describes a device.
func (v *StatusTracker) describeDevice(id wire.AgentID, month uint64) *Device {
	d := v.deviceByID[id]
	if d == nil {
		return &Device{Agent: string(id), State: deviceNever}
	}
	x := &Device{Agent: string(id), ProgramVersion: d.programVersion(), RootVersion: uint32(d.rootDocumentVersion),
		Rows:         d.rows,
		WorkedRounds: d.workedRounds, AcceptedUpdates: d.acceptedUpdates,
		FailedRounds: d.failedRounds, LeftOutUpdates: d.leftOutUpdates, ClippedUpdates: d.clippedUpdates,
		SecondsPerLocalStep: observe.FiniteOrNil(d.secondsPerLocalStep),
		BatteryRatio:        observe.FiniteOrNil(d.batteryRatio),
		Temperature:         observe.FiniteOrNil(d.temperature),
		MonthTrafficBytes:   observe.FiniteOrNil(d.budgetUsedBytes)}
	if d.lastSeenAt > 0 {
		at := time.Unix(d.lastSeenAt, 0)
		x.LastSeen = &at
	}
	if x.MonthTrafficBytes == nil && d.trafficBootEpoch > 0 && d.trafficMonth == month {
		n := float64(d.monthTrafficBytes)
		x.MonthTrafficBytes = &n
	}
	switch u := d.unfit; {
	case v.trainingDeviceByID[id] != nil:
		x.State = deviceTraining
	case d.hasSaidHello && u != nil:
		x.State, x.StateReason, x.UnfitColumn, x.UnfitLocation = deviceUnfit, u.unfitReasonText(), u.Column,
			u.BadValueLocation
	case d.hasSaidHello && d.lastSidelinedRound > 0:
		x.State, x.StateReason = deviceSitsOut, fmt.Sprintf("%s, up to round %d", d.sidelineReason,
			d.lastSidelinedRound)
	case d.hasSaidHello:
		x.State = devicePresent
	case d.onlineWithoutHelloSince > 0 && v.current.EstimatedHelloAgents == 0 &&
		v.now().Unix()-d.onlineWithoutHelloSince >= helloGraceSeconds:
		x.State, x.StateReason = deviceAbsent, connectedOnlyReason
	default:
		x.State, x.StateReason = deviceAbsent, string(d.leaveReason)
	}
	if d.protocolVersion != 0 {
		x.StateReason = strings.TrimPrefix(fmt.Sprintf("%s, speaks protocol version %d, not %d", x.StateReason,
			d.protocolVersion, wire.ProtocolVersion),
			", ")
	}
	if d.rejectionReason != 0 {
		x.StateReason = strings.TrimPrefix(x.StateReason+", rejected: "+d.rejectionReason.String(), ", ")
	}
	return x
}

// DeviceSortKeys are the keys to sort a list by, each also with a leading - for the other direction.
func DeviceSortKeys() []string {
	all := make([]string, 0, len(deviceCompareByKey))
	for name := range deviceCompareByKey {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

var deviceCompareByKey = map[string]func(a, b *Device) int{
	"agent": func(a, b *Device) int { return cmp.Compare(a.Agent, b.Agent) },
	"state": func(a, b *Device) int {
		return cmp.Compare(slices.Index(DeviceStates, a.State), slices.Index(DeviceStates, b.State))
	},
	"seen": func(a, b *Device) int {
		return cmp.Compare(unixOrZero(a.LastSeen), unixOrZero(b.LastSeen))
	},
	"version":  func(a, b *Device) int { return cmp.Compare(a.ProgramVersion, b.ProgramVersion) },
	"root":     func(a, b *Device) int { return cmp.Compare(a.RootVersion, b.RootVersion) },
	"rows":     func(a, b *Device) int { return cmp.Compare(a.Rows, b.Rows) },
	"rounds":   func(a, b *Device) int { return cmp.Compare(a.WorkedRounds, b.WorkedRounds) },
	"accepted": func(a, b *Device) int { return cmp.Compare(a.acceptedShare(), b.acceptedShare()) },
	"left":     func(a, b *Device) int { return cmp.Compare(a.LeftOutUpdates, b.LeftOutUpdates) },
	"clipped":  func(a, b *Device) int { return cmp.Compare(a.ClippedUpdates, b.ClippedUpdates) },
	"step": func(a, b *Device) int {
		return cmp.Compare(valueOrNegInf(a.SecondsPerLocalStep),
			valueOrNegInf(b.SecondsPerLocalStep))
	},
	"bytes": func(a, b *Device) int {
		return cmp.Compare(valueOrNegInf(a.MonthTrafficBytes), valueOrNegInf(b.MonthTrafficBytes))
	},
	"battery": func(a, b *Device) int {
		return cmp.Compare(valueOrNegInf(a.BatteryRatio), valueOrNegInf(b.BatteryRatio))
	},
	"heat": func(a, b *Device) int { return cmp.Compare(valueOrNegInf(a.Temperature), valueOrNegInf(b.Temperature)) },
}

// unixOrZero is a moment; one that is not known comes first.
func unixOrZero(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// valueOrNegInf is a number; one that is not known is the least.
func valueOrNegInf(x *float64) float64 {
	if x == nil {
		return math.Inf(-1)
	}
	return *x
}

// acceptedShare is the accepted updates' share of the rounds that ended for it, NaN before the first.
func (x *Device) acceptedShare() float64 {
	return float64(x.AcceptedUpdates) / float64(x.AcceptedUpdates+x.FailedRounds)
}

// Draw returns the list as a table. A reason that has no room in its line follows below.
func (l *Devices) Draw(width int) string {
	p := &status.Page{Width: width}
	var counts []string
	for _, s := range DeviceStates {
		if n := l.CountByState[s]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, s))
		}
	}
	p.AddLine("devices", "%d: %s", l.AgentsInListFile, strings.Join(counts, ", "))
	if l.AgentsInListFile != l.ListedAgentsInEffect {
		p.AddParagraph("!", fmt.Sprintf("the list in effect has %d: reload the coordinator", l.ListedAgentsInEffect))
	}
	if l.CountByState[deviceNever] > 0 {
		p.AddParagraph("!", neverSeenAdvice)
	}
	if len(l.Devices) == 0 {
		return p.Text.String()
	}
	lines := strings.Split(l.formatTable(), "\n")
	for i, x := range lines[:len(lines)-1] {
		why := ""
		if i > 0 {
			why = l.Devices[i-1].StateReason
		}
		line := strings.TrimRight(x, " ")
		if both := x + "  " + why; why != "" && len([]rune(both)) <= width {
			line, why = both, ""
		}
		p.Text.WriteString(status.CutToWidth(line, width) + "\n")
		if why != "" {
			p.AddParagraph("", why)
		}
	}
	return p.Text.String()
}

// formatTable has a head and a line for each device, without the reasons.
func (l *Devices) formatTable() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGENT\tSTATE\tSEEN\tVERSION\tROOT\tROWS\tROUNDS\tACCEPTED\tLEFT\tCLIPPED\tSTEP\tMONTH\t"+
		"BATTERY\tHEAT")
	for _, x := range l.Devices {
		seen, root, rows := "-", "-", "-"
		if x.LastSeen != nil {
			seen = status.FormatDuration(l.GeneratedAt.Sub(*x.LastSeen)) + " ago"
		}
		if x.RootVersion > 0 {
			root = strconv.FormatUint(uint64(x.RootVersion), 10)
		}
		if x.Rows > 0 {
			rows = strconv.FormatUint(x.Rows, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\n", x.Agent, x.State, seen,
			quoteUnlessWord(cmp.Or(x.ProgramVersion, "-")), root, rows, x.WorkedRounds, orDash("%.0f%%", 100,
				observe.FiniteOrNil(x.acceptedShare())),
			x.LeftOutUpdates, x.ClippedUpdates, orDash("%.3gms", 1e3, x.SecondsPerLocalStep), orDash("%.1fMB", 1e-6,
				x.MonthTrafficBytes),
			orDash("%.0f%%", 100, x.BatteryRatio), orDash("%.0f°C", 1, x.Temperature))
	}
	_ = w.Flush() // to memory
	return b.String()
}

// orDash formats a number in another unit, if it is known.
func orDash(format string, unit float64, x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x*unit)
}

// quoteUnlessWord quotes a text that an agent has sent, unless it is one word of printable characters.
func quoteUnlessWord(text string) string {
	if q := strconv.Quote(text); len(q) != len(text)+2 || strings.ContainsRune(text, ' ') {
		return q
	}
	return text
}
