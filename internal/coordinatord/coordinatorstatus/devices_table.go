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
	deviceTraining = "training"   // the device is training in the open round
	devicePresent  = "present"    // the device is available for the next draw
	deviceUnfit    = "unfit"      // the device cannot do the task
	deviceSitsOut  = "sits out"   // the device failed in a round and is not drawn for some rounds
	deviceAbsent   = "absent"     // the device was connected before
	deviceNever    = "never seen" // never connected, as far as the state folder and the broker show
)

// helloGraceSeconds is the time in seconds within which a connected device is expected to send a hello.
const helloGraceSeconds = 60

// connectedOnlyReason describes a device that is connected to the broker but does not answer the announcement.
const connectedOnlyReason = "connected, but the device does not reply to the coordinator's announcement: the device " +
	"has a different coordinator_key, or the broker's access rules block the announcement; run `agentd status` on " +
	"the device to see the cause"

// neverSeenAdvice is the advice about devices that have sent no message.
const neverSeenAdvice = "no messages were ever received from some devices (never seen): start agentd on these " +
	"devices; if agentd is running, `agentd status` shows whether the federation's name, broker.url or the broker's " +
	"access rules are the cause"

// DeviceStates contains all states in the order of a sorted list.
var DeviceStates = []string{deviceTraining, devicePresent, deviceUnfit, deviceSitsOut, deviceAbsent, deviceNever}

// Device is a row of the device list.
type Device struct {
	Agent           string     `json:"agent"`
	State           string     `json:"state"`
	StateReason     string     `json:"why,omitempty"`
	Remedy          string     `json:"remedy,omitempty"` // what makes the device take part; empty if nothing is wrong
	UnfitColumn     string     `json:"column,omitempty"` // column whose data makes the device unfit
	UnfitLocation   string     `json:"where,omitempty"`  // place of the unusable value: file and line, or topic
	LastSeen        *time.Time `json:"last_seen,omitempty"`
	ProgramVersion  string     `json:"version,omitempty"` // version of the device's program
	RootVersion     uint32     `json:"root,omitempty"`    // version of the device's root document
	Rows            uint64     `json:"rows"`
	WorkedRounds    uint64     `json:"rounds"`   // number of rounds in which the device worked
	AcceptedUpdates uint64     `json:"accepted"` // number of accepted updates
	FailedRounds    uint64     `json:"failed"`   // number of failed rounds
	// number of accepted updates left out of all models since the coordinator started
	LeftOutUpdates uint32 `json:"left_out"`
	ClippedUpdates uint32 `json:"clipped"` // number of accepted updates that were clipped since the coordinator started
	// version of the model with which the device predicts; 0 if the device has not reported one
	PredictionModelVersion uint64 `json:"model_in_use,omitempty"`
	// The fields below are nil if unknown.
	SecondsPerLocalStep *float64 `json:"step_time,omitempty"` // duration of a local step in seconds
	// MonthTrafficBytes is the number of bytes transferred this month, counted by the device's budget if it has one,
	// and otherwise by its reports.
	MonthTrafficBytes *float64 `json:"bytes_this_month,omitempty"`
	BatteryRatio      *float64 `json:"battery,omitempty"`     // battery charge from 0 to 1
	Temperature       *float64 `json:"temperature,omitempty"` // temperature in °C
}

// Devices is the list of the devices of a federation.
type Devices struct {
	GeneratedAt          time.Time      `json:"at"`
	ListedAgentsInEffect int            `json:"listed"` // number of agents in the list in effect
	AgentsInListFile     int            `json:"named"`  // number of agents in the list file, which may be newer
	CountByState         map[string]int `json:"states"` // number of devices in each state, before any filter
	Devices              []*Device      `json:"devices"`
}

// ListDevices returns the enrolled devices in one of the given states, or in any state if none is given. by is one of
// the DeviceSortKeys, optionally with a leading "-" for descending order.
func (v *StatusTracker) ListDevices(enrolled []wire.AgentID, states []string, by string) (*Devices, error) {
	for _, s := range states {
		if !slices.Contains(DeviceStates, s) {
			return nil, fmt.Errorf("unknown state %q: use %s", s, strings.Join(DeviceStates, ", "))
		}
	}
	name, descending := strings.CutPrefix(by, "-")
	order, ok := deviceCompareByKey[cmp.Or(name, "agent")]
	if !ok {
		return nil, fmt.Errorf("unknown sort key %q: use %s", name, strings.Join(DeviceSortKeys(), ", "))
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

// describeDevice returns the row of a device. month is the current [monthNumber].
func (v *StatusTracker) describeDevice(id wire.AgentID, month uint64) *Device {
	d := v.deviceByID[id]
	if d == nil {
		return &Device{Agent: string(id), State: deviceNever, Remedy: neverSeenRemedy}
	}
	x := &Device{Agent: string(id), ProgramVersion: d.programVersion(), RootVersion: uint32(d.rootDocumentVersion),
		Rows: d.rows, PredictionModelVersion: d.predictionModelVersion,
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
	repliesMissing := false
	switch u := d.unfit; {
	case v.trainingDeviceByID[id] != nil:
		x.State = deviceTraining
	case d.hasSaidHello && u != nil:
		x.State, x.StateReason, x.UnfitColumn, x.UnfitLocation = deviceUnfit, u.unfitReasonText(), u.Column,
			u.BadValueLocation
	case d.hasSaidHello && d.lastSidelinedRound > 0:
		x.State, x.StateReason = deviceSitsOut, fmt.Sprintf("%s, excluded until round %d", d.sidelineReason,
			d.lastSidelinedRound)
	case d.hasSaidHello:
		x.State = devicePresent
	case d.onlineWithoutHelloSince > 0 && v.current.EstimatedHelloAgents == 0 &&
		v.now().Unix()-d.onlineWithoutHelloSince >= helloGraceSeconds:
		x.State, x.StateReason, repliesMissing = deviceAbsent, connectedOnlyReason, true
	default:
		x.State, x.StateReason = deviceAbsent, string(d.leaveReason)
	}
	x.Remedy = d.remedy(x.Agent, x.State, repliesMissing)
	if d.protocolVersion != 0 {
		x.StateReason = strings.TrimPrefix(fmt.Sprintf("%s, the device uses protocol version %d instead of %d",
			x.StateReason,
			d.protocolVersion, wire.ProtocolVersion),
			", ")
	}
	if d.rejectionReason != 0 {
		x.StateReason = strings.TrimPrefix(x.StateReason+", rejected: "+d.rejectionReason.String(), ", ")
	}
	return x
}

// DeviceSortKeys returns the sort keys. A leading "-" reverses the order.
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

// unixOrZero returns the Unix time of t, or 0 if t is nil.
func unixOrZero(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// valueOrNegInf returns *x, or −∞ if x is nil.
func valueOrNegInf(x *float64) float64 {
	if x == nil {
		return math.Inf(-1)
	}
	return *x
}

// acceptedShare returns accepted updates / (accepted updates + failed rounds). It is NaN before the first round.
func (x *Device) acceptedShare() float64 {
	return float64(x.AcceptedUpdates) / float64(x.AcceptedUpdates+x.FailedRounds)
}

// Draw returns the list as a table. Reasons that do not fit into their line are listed below the table.
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
		p.AddParagraph("!", fmt.Sprintf("the running coordinator still uses a list of %d devices: reload the "+
			"coordinator",
			l.ListedAgentsInEffect))
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

// formatTable returns a header and one line per device, without the reasons.
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
	_ = w.Flush() // cannot fail: b is in memory
	return b.String()
}

// orDash formats *x divided by unit, or returns "-" if x is nil.
func orDash(format string, unit float64, x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf(format, *x*unit)
}

// quoteUnlessWord quotes a text from an agent unless it is a single word of printable characters.
func quoteUnlessWord(text string) string {
	if q := strconv.Quote(text); len(q) != len(text)+2 || strings.ContainsRune(text, ' ') {
		return q
	}
	return text
}
