package budget

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/mqtt"
)

// month is the number of calendar months since the year 0.
type month uint32

func monthOf(t time.Time) month { return month(t.Year()*12 + int(t.Month()) - 1) }

func (m month) String() string { return fmt.Sprintf("%04d-%02d", m/12, m%12+1) }

// trafficLedger counts the bytes transferred over the uplink in a calendar month. The count never decreases within a
// month. To spare flash memory, trafficLedger rarely saves, and saves the count plus a margin. After a crash the loaded
// count is therefore at most two margins too high and never too low.
type trafficLedger struct {
	monthlyLimitBytes uint64 // maximum number of bytes that the device may transfer per month
	saveAheadBytes    uint64 // bytes added to the count when it is saved
	folder            state.Folder
	meter             *mqtt.TrafficMeter

	month             month
	usedBytes         uint64
	countedMeterBytes uint64 // meter total that is included in usedBytes
	savedUsedBytes    uint64
}

// minSaveAheadBytes is the minimum margin of the saved count. It exceeds the number of bytes that a link transfers
// between two calls of countNewBytes.
const minSaveAheadBytes = 128 << 10

// openLedger loads the byte count of the current month. It saves the count at once to detect an unwritable folder at
// startup.
func (b *UplinkBudget) openLedger(folder state.Folder, now time.Time) (*trafficLedger, error) {
	folder.Dir = cmp.Or(b.Dir, folder.Dir)
	l := &trafficLedger{monthlyLimitBytes: b.MonthlyBytes, saveAheadBytes: max(b.MonthlyBytes/200, minSaveAheadBytes),
		folder: folder, meter: b.Meter, countedMeterBytes: b.Meter.TotalBytes(), month: monthOf(now)}
	err := folder.LoadFile(state.UplinkBudget, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("the content of the file has %d bytes instead of 12", len(b))
		}
		l.month, l.usedBytes = month(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint64(b[4:])
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.countNewBytes(now)
	return l, l.save(2 * l.saveAheadBytes)
}

// countNewBytes adds the bytes transferred since the last call and resets the count in a new month. It reports whether
// the count must be saved.
func (l *trafficLedger) countNewBytes(now time.Time) (save bool) {
	total := l.meter.TotalBytes()
	more := total - l.countedMeterBytes
	l.countedMeterBytes = total
	if m := monthOf(now); m > l.month {
		l.month, l.usedBytes, save = m, 0, true
	}
	l.usedBytes += more
	return save || l.usedBytes+l.saveAheadBytes > l.savedUsedBytes
}

// save stores the month's byte count, increased by ahead bytes, so that it is not too low after a crash.
func (l *trafficLedger) save(ahead uint64) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(l.month))
	b = binary.LittleEndian.AppendUint64(b, l.usedBytes+ahead)
	if err := l.folder.SaveFile(state.UplinkBudget, b); err != nil {
		return err
	}
	l.savedUsedBytes = l.usedBytes + ahead
	return nil
}

func (l *trafficLedger) remainingBytes() uint64 {
	return l.monthlyLimitBytes - min(l.monthlyLimitBytes, l.usedBytes)
}
