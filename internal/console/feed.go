package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/internal/api"
)

const (
	feedInterval      = time.Second
	heartbeatInterval = 15 * time.Second
	feedWriteTimeout  = 20 * time.Second // time after which a page that does not read is disconnected
	maxPages          = 64               // maximum number of open pages
	maxRowsPerMessage = 500
	maxDeletedRows    = 20_000 // number of remembered deletions after which all pages load all rows again
)

// Table is a set of rows that open pages follow. The feed calls Rows every second while at least one page is open, and
// sends the rows that have changed.
type Table struct {
	Name string
	// Rows calls yield with the key and the content of each row. The content is encoded as JSON. After an error the
	// pages keep the previous rows.
	Rows func(yield func(key string, row any)) error
}

// feed sends changed rows to the open pages. It works only while a page is open, and keeps no rows otherwise.
type feed struct {
	tables []Table

	mu      sync.Mutex
	pages   int
	stop    context.CancelFunc // stops the collecting goroutine; nil if no page is open
	epoch   string             // identifies a continuous sequence of versions
	version uint64             // number of the newest change
	rows    map[string]map[string]feedRow
	deleted int           // number of rows without content
	changed chan struct{} // closed when version or epoch changes

	replaced chan struct{} // closed when the server has other content
}

// feedRow is a row as the pages know it.
type feedRow struct {
	version uint64 // number of the last change of the row
	content []byte // JSON; nil if the row was deleted
}

func newFeed(tables []Table) *feed {
	f := &feed{tables: tables, replaced: make(chan struct{})}
	f.reset()
	return f
}

// reset forgets all rows. Pages that continue with the new epoch receive all rows again.
func (f *feed) reset() {
	f.epoch, f.version, f.deleted = rand.Text(), 0, 0
	f.rows = map[string]map[string]feedRow{}
	for _, t := range f.tables {
		f.rows[t.Name] = map[string]feedRow{}
	}
	f.changed = make(chan struct{})
}

// open counts a page. It starts to collect rows for the first page.
func (f *feed) open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pages >= maxPages {
		return &api.Error{Status: http.StatusServiceUnavailable,
			Problem: fmt.Sprintf("%d pages of the console are open: close some of them", maxPages)}
	}
	if f.pages++; f.pages == 1 {
		ctx, stop := context.WithCancel(context.Background())
		f.stop = stop
		f.collectLocked()
		go func() {
			tick := time.NewTicker(feedInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					f.mu.Lock()
					if ctx.Err() == nil {
						f.collectLocked()
					}
					f.mu.Unlock()
				}
			}
		}()
	}
	return nil
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pages--; f.pages == 0 {
		f.stop()
		f.reset()
	}
}

// collectLocked reads all tables and records the changes.
func (f *feed) collectLocked() {
	next := f.version + 1
	changes := false
	for _, t := range f.tables {
		known := f.rows[t.Name]
		present := make(map[string]bool, len(known))
		err := t.Rows(func(key string, row any) {
			present[key] = true
			content, err := json.Marshal(row)
			if err != nil {
				content = []byte("{}") // cannot happen: rows contain no channels, functions or infinite numbers
			}
			before, exists := known[key]
			if bytes.Equal(before.content, content) {
				return
			}
			if exists && before.content == nil {
				f.deleted--
			}
			known[key], changes = feedRow{next, content}, true
		})
		if err != nil {
			continue
		}
		for key, row := range known {
			if !present[key] && row.content != nil {
				known[key], changes = feedRow{next, nil}, true
				f.deleted++
			}
		}
	}
	if !changes {
		return
	}
	f.version = next
	before := f.changed
	f.changed = make(chan struct{})
	if f.deleted > maxDeletedRows {
		f.reset()
		f.collectLocked()
	}
	close(before)
}

// keyedRow is a row on its way to a page.
type keyedRow struct {
	key     string
	content []byte // nil if the row was deleted
}

// changesSince returns the rows that have changed after the given position, by table, and the new position. all is set
// if the page must forget its rows first. changed is closed at the next change.
func (f *feed) changesSince(epoch string, version uint64) (rows map[string][]keyedRow, toEpoch string,
	toVersion uint64, all bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if all = epoch != f.epoch || version > f.version; all {
		version = 0
	}
	rows = map[string][]keyedRow{}
	for name, table := range f.rows {
		for key, row := range table {
			if row.version > version && (row.content != nil || !all) {
				rows[name] = append(rows[name], keyedRow{key, row.content})
			}
		}
	}
	return rows, f.epoch, f.version, all, f.changed
}

// serve sends server-sent events to a page until it disconnects: "reset" if the page must forget its rows, and "rows"
// with changed rows of one table. The id of an event is the position after which a page that reconnects continues.
func (f *feed) serve(w http.ResponseWriter, r *http.Request) error {
	if err := f.open(); err != nil {
		return err
	}
	defer f.close()
	w.Header().Set("Content-Type", "text/event-stream")
	out := eventWriter{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // the server's ReadTimeout would end the stream
	epoch, number, _ := strings.Cut(cmp.Or(r.Header.Get("Last-Event-ID"), r.FormValue("after")), ".")
	version, _ := strconv.ParseUint(number, 10, 64) // without a number, all rows are sent
	heartbeat := time.NewTicker(heartbeatInterval)
	defer heartbeat.Stop()
	for out.err == nil {
		rows, toEpoch, toVersion, all, changed := f.changesSince(epoch, version)
		if all {
			out.send("", "reset", []byte("{}"))
		}
		epoch, version = toEpoch, toVersion
		for _, table := range slices.Sorted(maps.Keys(rows)) {
			for part := range slices.Chunk(rows[table], maxRowsPerMessage) {
				out.send("", "rows", encodeRows(table, part))
			}
		}
		out.send(fmt.Sprintf("%s.%d", epoch, version), "current", []byte("{}"))
		out.flush()
		select {
		case <-changed:
		case <-heartbeat.C:
		case <-f.replaced: // the page reconnects
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// encodeRows encodes rows as {"table": name, "rows": {key: content}}. The content of a deleted row is null.
func encodeRows(table string, rows []keyedRow) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"table":%q,"rows":{`, table)
	for i, row := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(row.key) // a string has no error
		b.Write(key)
		b.WriteByte(':')
		if row.content == nil {
			b.WriteString("null")
		}
		b.Write(row.content)
	}
	b.WriteString("}}")
	return b.Bytes()
}

// eventWriter writes server-sent events. After the first error it writes nothing.
type eventWriter struct {
	w       io.Writer
	control *http.ResponseController
	err     error
}

func (e *eventWriter) send(id, event string, data []byte) {
	if e.err != nil {
		return
	}
	if e.err = e.control.SetWriteDeadline(time.Now().Add(feedWriteTimeout)); e.err != nil {
		return
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	_, e.err = fmt.Fprintf(e.w, "%sevent: %s\ndata: %s\n\n", id, event, data)
}

func (e *eventWriter) flush() {
	if e.err == nil {
		e.err = e.control.Flush()
	}
}
