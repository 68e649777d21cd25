package coordinatorstatus

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// deviceHistory is the part of a device's entry that survives a restart of the coordinator.
type deviceHistory struct {
	lastSeenAt      int64 // Unix time in seconds; 0 means never
	workedRounds    uint64
	acceptedUpdates uint64       // number of accepted updates
	lastJoinedRound wire.RoundID // number of the newest round that the device has joined
	// failedRounds is the number of rounds in which the device declined after it had begun, was refused, or was
	// sidelined.
	failedRounds uint64

	trafficBootEpoch  wire.Epoch // boot epoch of the newest traffic report
	bootTrafficBytes  uint64     // number of bytes reported since that boot
	trafficMonth      uint64     // month to which monthTrafficBytes belongs; see monthNumber
	monthTrafficBytes uint64     // number of bytes reported for trafficMonth
}

// addReportedTraffic adds the traffic of a report to the current month; total is the number of bytes since the device's
// boot. The first report of a device only sets the starting point, because its bytes may belong to an earlier month.
func (k *deviceHistory) addReportedTraffic(now time.Time, boot wire.Epoch, total uint64) {
	month, more := monthNumber(now), total
	switch {
	case k.trafficBootEpoch == 0:
		more = 0
	case boot == k.trafficBootEpoch:
		more -= min(more, k.bootTrafficBytes)
	}
	if month != k.trafficMonth {
		k.trafficMonth, k.monthTrafficBytes = month, 0
	}
	k.trafficBootEpoch, k.bootTrafficBytes, k.monthTrafficBytes = boot, total, k.monthTrafficBytes+more
}

// monthNumber returns 12·year + month, in UTC.
func monthNumber(t time.Time) uint64 {
	t = t.UTC()
	return uint64(12*t.Year()) + uint64(t.Month())
}

// A saved history contains for each device, in ascending order of ids: the length of the id (one byte), the id, and the
// nine numbers of deviceHistory as varints of package encoding/binary.

// EncodeDeviceHistoryIfChanged returns the encoded histories of all devices. It returns false if they have not changed
// since the last call.
func (v *StatusTracker) EncodeDeviceHistoryIfChanged() ([]byte, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.hasUnsavedChanges {
		return nil, false
	}
	v.hasUnsavedChanges = false
	ids := make([]wire.AgentID, 0, len(v.deviceByID))
	for id := range v.deviceByID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	b := make([]byte, 0, 48*len(ids))
	for _, id := range ids {
		d := v.deviceByID[id]
		if d.lastSeenAt == 0 { // the device is known only from the broker and has no history
			continue
		}
		b = append(append(b, byte(len(id))), id...)
		for _, n := range []uint64{uint64(d.lastSeenAt), d.workedRounds, d.acceptedUpdates, uint64(d.lastJoinedRound),
			d.failedRounds,
			uint64(d.trafficBootEpoch),
			d.bootTrafficBytes, d.trafficMonth, d.monthTrafficBytes} {
			b = binary.AppendUvarint(b, n)
		}
	}
	return b, true
}

// MarkDeviceHistoryUnsaved is called after a failed write. It makes the next call of EncodeDeviceHistoryIfChanged
// return the history again.
func (v *StatusTracker) MarkDeviceHistoryUnsaved() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hasUnsavedChanges = true
}

// RestoreDeviceHistory restores the histories from EncodeDeviceHistoryIfChanged for the listed devices. The ids in
// listed must be in ascending order. If it returns an error, nothing is restored.
func (v *StatusTracker) RestoreDeviceHistory(saved []byte, listed []wire.AgentID) error {
	all := map[wire.AgentID]*deviceEntry{}
	for len(saved) > 0 {
		n := 1 + int(saved[0])
		if len(saved) < n {
			return errors.New("the stored history of devices is truncated: incomplete device id")
		}
		id := wire.AgentID(saved[1:n])
		saved = saved[n:]
		var x [9]uint64
		for i := range x {
			value, size := binary.Uvarint(saved)
			if size <= 0 {
				return errors.New("the stored history of devices is truncated: incomplete number")
			}
			x[i], saved = value, saved[size:]
		}
		if _, in := slices.BinarySearch(listed, id); in {
			all[id] = newDevice()
			all[id].deviceHistory = deviceHistory{int64(x[0]), x[1], x[2], wire.RoundID(x[3]), x[4], wire.Epoch(x[5]),
				x[6], x[7], x[8]}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deviceByID = all
	return nil
}
