package logging

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// keptRecords is the number of log records that RecentRecords keeps.
const keptRecords = 2000

// RecentRecord is a log record for display.
type RecentRecord struct {
	Number     uint64    `json:"-"` // position in the log of this process, from 1
	Time       time.Time `json:"time"`
	Level      string    `json:"level"` // INFO, WARN or ERROR
	Message    string    `json:"message"`
	Attributes string    `json:"attributes,omitempty"` // attributes in the format of the text log
}

// RecentRecords keeps the newest 2,000 log records in memory, except debug records. The zero value is empty. It is safe
// for concurrent use.
type RecentRecords struct {
	mu      sync.Mutex
	records []RecentRecord // ring buffer; the record with number n is at index (n-1) % keptRecords
	written uint64         // number of the newest record
}

// Records returns the kept records whose numbers are greater than after, oldest first.
func (r *RecentRecords) Records(after uint64) []RecentRecord {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []RecentRecord
	for n := max(after, r.written-uint64(len(r.records))); n < r.written; n++ {
		all = append(all, r.records[n%keptRecords])
	}
	return all
}

func (r *RecentRecords) add(x RecentRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written++
	x.Number = r.written
	if len(r.records) < keptRecords {
		r.records = append(r.records, x)
	} else {
		r.records[(r.written-1)%keptRecords] = x
	}
}

// recentHandler is a slog.Handler that adds records to a RecentRecords.
type recentHandler struct {
	recent    *RecentRecords
	attrs     string // formatted attributes of WithAttrs, each preceded by a space
	keyPrefix string // key prefix of WithGroup, such as "broker.tls."
}

func (h recentHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h recentHandler) Handle(_ context.Context, rec slog.Record) error {
	var b strings.Builder
	b.WriteString(h.attrs)
	rec.Attrs(func(a slog.Attr) bool {
		appendAttrs(&b, h.keyPrefix, []slog.Attr{a})
		return true
	})
	h.recent.add(RecentRecord{Time: rec.Time, Level: rec.Level.String(), Message: rec.Message,
		Attributes: strings.TrimPrefix(b.String(), " ")})
	return nil
}

func (h recentHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	appendAttrs(&b, h.keyPrefix, attrs)
	h.attrs += b.String()
	return h
}

func (h recentHandler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.keyPrefix += name + "."
	}
	return h
}
