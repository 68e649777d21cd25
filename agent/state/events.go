package state

import (
	"fmt"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{lostFiles, raisedStartCounters}

var (
	lostFiles = observe.CounterByLabel("state_files_lost_total",
		"State files that were ignored at this start because they were damaged or had another version.",
		"file", FileNames())
	raisedStartCounters = observe.Counter("starts_raised_total",
		"Number of times that the start counter was raised because the broker retained a presence message with a "+
			"higher number.")
)

// FileLost reports that a file in the state folder is damaged or has an unsupported version. The agent continues
// without the file.
type FileLost struct {
	File        string // name of the file, one of FileNames
	Err         error
	Consequence string // effect of the loss on the agent, as text for the operator
}

// NewStartCounterLost returns the event for a damaged start counter. err is the error returned by
// store.Disk.NextBootEpoch.
func NewStartCounterLost(err error) FileLost {
	return FileLost{File: StartCounter.Name, Err: err, Consequence: StartCounter.LossConsequence}
}

// JoinAgain is the remedy for a device whose key or certificate the coordinator or the broker does not accept.
const JoinAgain = "run `coordinator devices rotate ID` at the coordinator, then run the printed command on this device"

// Describe implements observe.Event. The condition lasts until the next start.
func (e FileLost) Describe(d *observe.EventDescription) {
	d.IncCounter(lostFiles, e.File)
	d.Log(observe.Error, "ignoring a file in the state folder: not usable", "file", e.File, "err", e.Err,
		"consequence", e.Consequence)
	remedy := "check the disk of state_dir; the agent continues without the file"
	if e.File == DeviceKeys.Name {
		remedy = "if the coordinator ignores the device, " + JoinAgain
	}
	d.RaiseCondition("file "+e.File, fmt.Sprintf("the file %s in the state folder is unusable: %s", e.File,
		e.Consequence),
		remedy)
}

// StartCounterRaised reports that the start counter was raised because an earlier start had used a higher number.
type StartCounterRaised struct{ From, To wire.Epoch }

// Describe implements observe.Event. The condition lasts until the next start.
func (e StartCounterRaised) Describe(d *observe.EventDescription) {
	d.IncCounter(raisedStartCounters)
	d.Log(observe.Warn, "start counter raised", "from", e.From, "to", e.To,
		"cause", "an earlier start had a higher number: the start counter was lost or restored from an older copy")
	d.RaiseCondition("start counter",
		fmt.Sprintf("the start counter was lost or restored from an older copy: it was raised from %d to %d",
			e.From, e.To), "keep state_dir on a disk that survives restarts, and do not restore it from a backup")
}
