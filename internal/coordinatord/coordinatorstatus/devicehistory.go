package coordinatorstatus

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// deviceHistory is what of a device outlives a restart of the coordinator.
type deviceHistory struct {
	lastSeenAt      int64 // Unix time in seconds; 0 = never
	workedRounds    uint64
	acceptedUpdates uint64       // updates
	lastJoinedRound wire.RoundID // the newest of the rounds
	// rounds in which it declined after it had begun, was refused, or after which it sat out
	failedRounds uint64

	trafficBootEpoch  wire.Epoch // whose traffic total is
	bootTrafficBytes  uint64     // bytes that its reports have counted since that start
	trafficMonth      uint64     // of bytes: see monthNumber
	monthTrafficBytes uint64     // in that month, as far as reports told
}

// addReportedTraffic adds what a report tells of the traffic since the device's start. The first report that is ever
// heard of a findOrAddDevice only sets where its counting begins: what it counted before may be of an earlier month.
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

// monthNumber is 12·year + month, in UTC.
func monthNumber(t time.Time) uint64 {
	t = t.UTC()
	return uint64(12*t.Year()) + uint64(t.Month())
}

// A saved view has for each device the length of its id (1), the id, and the nine numbers of kept in their order, as
// varints of package encoding/binary. Devices ascend by id.

// EncodeDeviceHistoryIfChanged returns the histories of all devices. It returns false if they have not changed since
// the last call.
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
		if d.lastSeenAt == 0 { // only the broker has known it
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

// MarkDeviceHistoryUnsaved has EncodeDeviceHistoryIfChanged return the history again, because it could not be written.
func (v *StatusTracker) MarkDeviceHistoryUnsaved() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.hasUnsavedChanges = true
}

// RestoreDeviceHistory restores the histories that EncodeDeviceHistoryIfChanged returned, for the devices in the list,
// whose ids ascend. It restores none of them if it returns an error.
func (v *StatusTracker) RestoreDeviceHistory(saved []byte, listed []wire.AgentID) error {
	all := map[wire.AgentID]*deviceEntry{}
	for len(saved) > 0 {
		n := 1 + int(saved[0])
		if len(saved) < n {
			return errors.New("it ends within an id")
		}
		id := wire.AgentID(saved[1:n])
		saved = saved[n:]
		var x [9]uint64
		for i := range x {
			value, size := binary.Uvarint(saved)
			if size <= 0 {
				return errors.New("it ends within a number")
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
