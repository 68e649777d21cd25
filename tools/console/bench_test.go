package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/console"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	fleetSize        = 10_000 // number of devices
	changedPerSecond = 1_000  // number of devices that send a message in a second
	rounds           = 400_000
)

// fleet is the console of a coordinator with many devices, whose events the benchmark makes.
type fleet struct {
	tracker *coordinatorstatus.StatusTracker
	ids     []wire.AgentID
	url     string
}

// startFleet serves the console with the tables and the history route of a coordinator, in this process.
func startFleet(b *testing.B, historyDir string) *fleet {
	b.Helper()
	f := &fleet{tracker: coordinatorstatus.New("v0.0.0", "bench", time.Now, status.NewBoard(time.Now, nil))}
	for i := range fleetSize {
		id := wire.AgentID(fmt.Sprintf("device-%05d", i))
		f.ids = append(f.ids, id)
		f.tracker.Observe(round.AgentEligible{Agent: id, RowCount: 1000, EligibleAgents: i + 1})
	}
	f.tracker.Observe(round.RoundOpened{Round: 1, Participants: f.ids[:100]})
	sample := api.GetRoute("/v1/history/sample", "", func(*http.Request) ([]runs.HistoryEntry, error) {
		return runs.SampleHistory(historyDir, 1000)
	})
	s, err := console.Start(b.Context(), console.Config{Program: "coordinator",
		Page: console.CoordinatorPage(), Listen: "127.0.0.1:0",
		SessionKey: []byte("key"), Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	s.SetContent(console.Content{Routes: []api.Route{sample}, Tables: []console.Table{f.tracker.StatusTable(),
		f.tracker.DevicesTable(func() ([]wire.AgentID, error) { return f.ids, nil })}})
	f.url = s.URL()
	return f
}

// sendMessages makes changedPerSecond devices send a message every second until ctx ends.
func (f *fleet) sendMessages(ctx context.Context) {
	next := 0
	for ctx.Err() == nil {
		for range changedPerSecond {
			f.tracker.Observe(coordinator.MessageAccepted{Agent: f.ids[next%fleetSize]})
			next++
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// BenchmarkUpdates shows the list of 10,000 devices for one second per iteration, while 1,000 devices change every
// second. It reports the longest task of the page's main thread, during which the page does not react, in ms; tasks
// shorter than 50 ms are not measured by Chromium and count as 50.
func BenchmarkUpdates(b *testing.B) {
	f := startFleet(b, b.TempDir())
	go f.sendMessages(b.Context())
	p := openBrowser(b)
	p.open(f.url, "devices")
	p.await(".counts", "10000 devices")
	p.await(".row", "device-00000")
	evaluate[bool](p, `(() => {
		window.longest = 50;
		new PerformanceObserver((list) => {
			for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration);
		}).observe({ entryTypes: ['longtask'] });
		document.body.dataset.longestUpdate = '0';
		return true;
	})()`)
	for b.Loop() {
		p.do(chromedp.Sleep(time.Second))
	}
	b.ReportMetric(evaluate[float64](p, "window.longest"), "ms/longest-task")
	b.ReportMetric(evaluate[float64](p, "Number(document.body.dataset.longestUpdate)"), "ms/longest-update")
}

// BenchmarkHistory opens the overview of a run with 400,000 rounds, and measures the time until the chart is drawn.
func BenchmarkHistory(b *testing.B) {
	dir := b.TempDir()
	file, err := os.Create(filepath.Join(dir, "history.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	for r := range rounds {
		fmt.Fprintf(file, `{"run":7,"round":%d,"kind":"training","outcome":"closed","version":%d,"selected":10,`+
			`"accepted":9,"seconds":1.5,"risk":%g}`+"\n", r+1, r+1, 1/float64(r+1))
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	f := startFleet(b, dir)
	p := openBrowser(b)
	for b.Loop() {
		p.do(chromedp.Navigate("about:blank"), chromedp.Navigate(f.url+"#/overview"))
		for evaluate[int](p, "Number(document.querySelector('.chart')?.dataset.points || 0)") < 900 {
			p.do(chromedp.Sleep(10 * time.Millisecond))
		}
	}
}

// BenchmarkMemory opens five pages of a coordinator with 10,000 devices. It reports by how many MB the heap grows, and
// by how many MB it is larger after the pages were closed.
func BenchmarkMemory(b *testing.B) {
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	f := startFleet(b, b.TempDir())
	go f.sendMessages(b.Context())
	var opened, closed float64
	for b.Loop() {
		before := heap()
		ctx, leave := context.WithCancel(b.Context())
		for range 5 {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"v1/feed", nil)
			if err != nil {
				b.Fatal(err)
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				b.Fatal(err)
			}
			go func() { // a page reads all events and keeps nothing in this process
				defer answer.Body.Close()
				buffer := make([]byte, 64<<10)
				for {
					if _, err := answer.Body.Read(buffer); err != nil {
						return
					}
				}
			}()
		}
		<-time.After(3 * time.Second)
		opened = heap() - before
		leave()
		<-time.After(time.Second)
		closed = heap() - before
	}
	b.ReportMetric(opened, "MB/five-pages")
	b.ReportMetric(closed, "MB/closed")
}
