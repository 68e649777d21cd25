package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// page is an http.ResponseWriter that records the events that a page receives. It supports the deadlines and Flush that
// http.ResponseController needs.
type page struct {
	*httptest.ResponseRecorder
	mu      sync.Mutex
	text    strings.Builder
	blocked chan struct{} // if not nil, writes wait until it is closed, and then fail
}

func newPage() *page { return &page{ResponseRecorder: httptest.NewRecorder()} }

func (p *page) Write(b []byte) (int, error) {
	if p.blocked != nil {
		<-p.blocked
		return 0, errors.New("write deadline exceeded")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) SetReadDeadline(time.Time) error { return nil }

func (p *page) SetWriteDeadline(t time.Time) error {
	if p.blocked != nil {
		time.AfterFunc(time.Until(t), sync.OnceFunc(func() { close(p.blocked) }))
	}
	return nil
}

// events returns the events received since the last call, without ids and heartbeats.
func (p *page) events() (all []string, position string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, event := range strings.Split(p.text.String(), "\n\n") {
		name, data := "", ""
		for _, line := range strings.Split(event, "\n") {
			key, value, _ := strings.Cut(line, ": ")
			switch key {
			case "event":
				name = value
			case "data":
				data = value
			case "id":
				position = value
			}
		}
		if name == "rows" || name == "reset" {
			all = append(all, strings.TrimSuffix(name+" "+data, " {}"))
		}
	}
	p.text.Reset()
	return all, position
}

// rowsTable is a table for tests.
type rowsTable struct {
	mu    sync.Mutex
	rows  map[string]any
	err   error
	calls int
}

func (r *rowsTable) set(rows map[string]any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows, r.err = rows, err
}

func (r *rowsTable) table() Table {
	return Table{Name: "t", Rows: func(yield func(string, any)) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls++
		for key, row := range r.rows {
			yield(key, row)
		}
		return r.err
	}}
}

// connect opens a page after a position, and returns a function that closes it.
func connect(f *feed, after string) (p *page, disconnect func()) {
	p = newPage()
	ctx, cancel := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/feed?after="+after, nil)
	var done sync.WaitGroup
	done.Go(func() { _ = f.serve(p, r) })
	return p, func() {
		cancel()
		done.Wait()
	}
}

func wantEvents(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestFeed checks that a page receives all rows, then only changes, and after a reconnect only the missing changes.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var source rowsTable
		source.set(map[string]any{"a": 1}, nil)
		f := newFeed([]Table{source.table()})
		pass(5 * time.Second)
		if source.calls != 0 {
			t.Errorf("%d reads without a page", source.calls)
		}
		first, leaveFirst := connect(f, "")
		second, leaveSecond := connect(f, "")
		synctest.Wait()
		got, position := first.events()
		wantEvents(t, "first page", got, "reset", `rows {"table":"t","rows":{"a":1}}`)
		second.events()

		source.set(map[string]any{"a": 1, `"b"<`: "x"}, nil)
		pass(feedInterval)
		got, _ = first.events()
		wantEvents(t, "a new row", got, `rows {"table":"t","rows":{"\"b\"\u003c":"x"}}`)
		leaveFirst()

		source.set(map[string]any{"a": 2}, nil)
		pass(feedInterval)
		source.set(nil, errors.New("the list cannot be read"))
		pass(feedInterval)
		again, leaveAgain := connect(f, position)
		synctest.Wait()
		got, _ = again.events()
		if len(got) != 1 || !strings.Contains(got[0], `"a":2`) || !strings.Contains(got[0], `"\"b\"\u003c":null`) {
			t.Errorf("after a reconnect: %q", got)
		}
		leaveAgain()
		leaveSecond()
		calls := source.calls
		pass(5 * time.Second)
		if source.calls != calls || len(f.rows["t"]) != 0 {
			t.Error("the feed still works although no page is open")
		}
		late, leaveLate := connect(f, position) // the position is older than the newest rows
		synctest.Wait()
		got, _ = late.events()
		wantEvents(t, "after everybody had left", got, "reset")
		leaveLate()
	})
}

// TestSlowReader checks that a page that does not read is disconnected and delays neither the feed nor other pages.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var source rowsTable
		source.set(map[string]any{"a": 1}, nil)
		f := newFeed([]Table{source.table()})
		slow := newPage()
		slow.blocked = make(chan struct{})
		ended := make(chan struct{})
		go func() {
			_ = f.serve(slow, httptest.NewRequest(http.MethodGet, "/v1/feed", nil))
			close(ended)
		}()
		synctest.Wait()
		quick, leave := connect(f, "")
		synctest.Wait()
		quick.events()
		source.set(map[string]any{"a": 2}, nil)
		pass(feedInterval)
		got, _ := quick.events()
		wantEvents(t, "beside a slow page", got, `rows {"table":"t","rows":{"a":2}}`)
		began := time.Now()
		<-ended
		if took := time.Since(began); took > feedWriteTimeout {
			t.Errorf("the slow page is disconnected after %v", took)
		}
		leave()
	})
}

// TestPagesAreBounded checks the limit of open pages, and that a replaced content ends all of them.
func TestPagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(nil)
		var all []func()
		for range maxPages {
			_, leave := connect(f, "")
			all = append(all, leave)
		}
		synctest.Wait()
		err := f.serve(newPage(), httptest.NewRequest(http.MethodGet, "/v1/feed", nil))
		if err == nil || !strings.Contains(err.Error(), "64 pages of the console are open") {
			t.Errorf("one page more: %v", err)
		}
		close(f.replaced)
		synctest.Wait()
		f.mu.Lock()
		if f.pages != 0 {
			t.Errorf("%d pages are open after the content was replaced", f.pages)
		}
		f.mu.Unlock()
		for _, leave := range all {
			leave()
		}
	})
}

// TestDeletedRowsAreBounded checks that the feed does not store all deletions, and that pages load all rows again.
func TestDeletedRowsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var source rowsTable
		f := newFeed([]Table{source.table()})
		p, leave := connect(f, "")
		defer leave()
		for round := range 4 {
			rows := map[string]any{}
			for i := range maxDeletedRows / 2 {
				rows[fmt.Sprint(round, " ", i)] = i
			}
			source.set(rows, nil)
			pass(feedInterval)
		}
		f.mu.Lock()
		n := len(f.rows["t"])
		f.mu.Unlock()
		if n > 2*maxDeletedRows {
			t.Errorf("%d rows are stored", n)
		}
		got, _ := p.events()
		resets := 0
		for _, event := range got {
			if event == "reset" {
				resets++
			}
		}
		if resets != 2 {
			t.Errorf("%d resets, want one at the beginning and one after %d deletions", resets, maxDeletedRows)
		}
	})
}

// pass lets time pass and waits until all goroutines of the test wait.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
