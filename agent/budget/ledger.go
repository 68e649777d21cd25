package budget

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/mqtt"
)

// month counts calendar months from the year 0.
type month uint32

func monthOf(t time.Time) month { return month(t.Year()*12 + int(t.Month()) - 1) }

func (m month) String() string { return fmt.Sprintf("%04d-%02d", m/12, m%12+1) }

// trafficLedger keeps what the uplink has carried in a calendar month. The number on
// disk runs ahead of the count, and is written again only when the count comes
// near it, since flash wears. After a kill an agent has counted too much, by two
// margins at most, and never too little. The month only goes forward.
type trafficLedger struct {
	limit          uint64 // bytes a month
	saveAheadBytes uint64
	folder         state.Folder
	meter          *mqtt.TrafficMeter

	month          month
	used           uint64
	meterTotal     uint64 // the meter's total, up to here in used
	savedUsedBytes uint64
}

// minSaveAheadBytes is more than what goes over a link between two looks at the meter.
const minSaveAheadBytes = 128 << 10

// open takes up what the folder has of this month, and makes sure that it
// can be written.
func (b *Budget) open(folder state.Folder, now time.Time) (*trafficLedger, error) {
	folder.Dir = cmp.Or(b.Dir, folder.Dir)
	l := &trafficLedger{limit: b.MonthlyBytes, saveAheadBytes: max(b.MonthlyBytes/200, minSaveAheadBytes),
		folder: folder, meter: b.Meter, meterTotal: b.Meter.Total(), month: monthOf(now)}
	err := folder.Load(state.UplinkBudget, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("%d bytes, want 12", len(b))
		}
		l.month, l.used = month(binary.LittleEndian.Uint32(b)), binary.LittleEndian.Uint64(b[4:])
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.count(now)
	return l, l.save(2 * l.saveAheadBytes)
}

// count takes in what the meter has counted, and the beginning of a month. It
// reports whether the disk must be told.
func (l *trafficLedger) count(now time.Time) (save bool) {
	total := l.meter.Total()
	more := total - l.meterTotal
	l.meterTotal = total
	if m := monthOf(now); m > l.month {
		l.month, l.used, save = m, 0, true
	}
	l.used += more
	return save || l.used+l.saveAheadBytes > l.savedUsedBytes
}

// save writes a number that is so far ahead.
func (l *trafficLedger) save(ahead uint64) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(l.month))
	b = binary.LittleEndian.AppendUint64(b, l.used+ahead)
	if err := l.folder.Save(state.UplinkBudget, b); err != nil {
		return err
	}
	l.savedUsedBytes = l.used + ahead
	return nil
}

func (l *trafficLedger) left() uint64 { return l.limit - min(l.limit, l.used) }
