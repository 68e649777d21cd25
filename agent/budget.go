package agent

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
)

const (
	budgetFile    = "budget"
	budgetVersion = 1
)

// month counts calendar months from the year 0.
type month uint32

func monthOf(t time.Time) month { return month(t.Year()*12 + int(t.Month()) - 1) }

func (m month) String() string { return fmt.Sprintf("%04d-%02d", m/12, m%12+1) }

// ledger keeps what the uplink has carried in a calendar month. The number on
// disk runs ahead of the count, and is written again only when the count comes
// near it, since flash wears. After a kill an agent has counted too much, by two
// margins at most, and never too little. The month only goes forward.
type ledger struct {
	limit  uint64 // bytes a month
	margin uint64
	disk   store.Disk
	path   string
	meter  *mqtt.Meter

	month  month
	used   uint64
	read   uint64 // the meter's total, up to here in used
	onDisk uint64

	told     BudgetUsed // the last time
	backTold bool
}

// minMargin is more than what goes over a link between two looks at the meter.
const minMargin = 128 << 10

// openLedger takes up what the folder has of this month, and makes sure that it
// can be written.
func openLedger(c *Config) (*ledger, error) {
	now := c.Now()
	l := &ledger{limit: c.Budget, margin: max(c.Budget/200, minMargin), disk: c.Disk,
		path:  filepath.Join(c.Dir, budgetFile),
		meter: c.Meter, read: c.Meter.Total(), month: monthOf(now)}
	err := c.record(budgetFile, budgetVersion, 64, func(b []byte) error {
		if len(b) != 12 {
			return fmt.Errorf("%d bytes, want 12", len(b))
		}
		l.month, l.used = month(le.Uint32(b)), le.Uint64(b[4:])
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.count(now)
	return l, l.save(2 * l.margin)
}

// count takes in what the meter has counted, and the beginning of a month. It
// reports whether the disk must be told.
func (l *ledger) count(now time.Time) (save bool) {
	total := l.meter.Total()
	more := total - l.read
	l.read = total
	if m := monthOf(now); m > l.month {
		l.month, l.used, save = m, 0, true
	}
	l.used += more
	return save || l.used+l.margin > l.onDisk
}

// save writes a number that is so far ahead.
func (l *ledger) save(ahead uint64) error {
	b := le.AppendUint32(nil, uint32(l.month))
	b = le.AppendUint64(b, l.used+ahead)
	if err := l.disk.SaveRecord(l.path, budgetVersion, b); err != nil {
		return err
	}
	l.onDisk = l.used + ahead
	return nil
}

func (l *ledger) left() uint64 { return l.limit - min(l.limit, l.used) }

// spent reports whether nothing is left. The agent then does not read the
// announcements, which may have models in them, until the next month.
func (a *Agent) spent() bool { return a.ledger != nil && a.ledger.left() == 0 }

// account keeps the budget's books, if there is a budget.
func (a *Agent) account() {
	l := a.ledger
	if l == nil {
		return
	}
	now, spent := a.cfg.Now(), a.spent()
	if m := monthOf(now); m < l.month && !l.backTold {
		l.backTold = true
		a.cfg.Logger.Warn("the clock was set back: bytes go on counting for the later month; if that was the wrong "+
			"one, stop the agent and remove the file",
			"clock", m, "counted_for", l.month, "file", l.path)
	}
	if l.count(now) {
		a.written("save the count of bytes", l.save(2*l.margin))
	}
	a.step(round.Budgeted{Left: l.left()})
	a.holdBlock()
	switch {
	case a.spent() && !spent:
		a.conn.Unsubscribe(a.cfg.Topics.Round())
	case spent && !a.spent():
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Round())
	}
	fact := BudgetUsed{Month: l.month.String(), Used: l.used, Limit: l.limit, Estimate: a.machine.Estimate()}
	if fact.Month != l.told.Month || fact.Estimate != l.told.Estimate || fact.Used-l.told.Used >= l.margin/8 {
		l.told = fact
		a.cfg.Observer.Observe(fact)
	}
}

// closeBooks leaves the exact count to the next life.
func (a *Agent) closeBooks() {
	if a.ledger == nil {
		return
	}
	a.ledger.count(a.cfg.Now())
	if err := a.ledger.save(0); err != nil {
		a.cfg.Logger.Warn("cannot save the count of bytes: the next start counts some too many", "err", err)
	}
}
