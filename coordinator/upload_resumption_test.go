package coordinator_test

import (
	"errors"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/coordinator/uploads"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// hugeChunks is the number of chunks of the model that huge configures, and of each update of this model.
const hugeChunks = 69

// huge configures a model of 4.2 MB, which is received in files.
func huge(f *federation) {
	f.cfg.Task.Model.HiddenUnits = []uint32{1024, 1024}
	f.cfg.Task.Training.StepSize = 0.001
	f.cfg.Round.MaxAggregations = 1
}

// traffic counts the chunks that a broker delivers, and signals when a given number is reached.
type traffic struct {
	mu    sync.Mutex
	under string // substring of the topics to count
	on    bool   // false while the coordinator reads back its own blobs
	blob  string // hash of the first blob seen; blobs of later rounds are ignored
	seen  map[string]int
	total int
	at    int
	news  chan struct{}
}

func newTraffic(under string, at int) *traffic {
	return &traffic{under: under, seen: map[string]int{}, at: at, news: make(chan struct{}, 1)}
}

// delay returns the delay of a message on the given topic. It also counts the chunks on the topics under observation.
func (c *traffic) delay(topic string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.on && strings.Contains(topic, c.under) && !strings.HasSuffix(topic, "/m") &&
		(c.blob == "" || c.blob == path.Dir(topic)) {
		c.blob = path.Dir(topic)
		c.seen[topic]++
		if c.total++; c.total == c.at {
			c.news <- struct{}{}
		}
	}
	return 20 * time.Millisecond
}

// begin starts counting when an agent starts to work.
func (c *traffic) begin(m any) {
	if _, ok := m.(agentround.WorkStarted); ok {
		c.mu.Lock()
		c.on = true
		c.mu.Unlock()
	}
}

// TestKilledInTransferGoesOn checks that a process which is killed during a transfer resumes from its disk, even if the
// last writes were lost. Only lost chunks and chunks in transit may be sent again.
func TestKilledInTransferGoesOn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		under   string
		victim  int    // index of the killed process; 1 is the coordinator
		file    string // partial file of the transfer
		flying  int    // number of chunks in transit at a time
		spoiled int    // number of chunks that the crash damages
	}{
		{"agent pulls", "/m/", 0, "model.part", 8, 0},
		{"agent pulls, torn", "/m/", 0, "model.part", 8, 2},
		{"coordinator receives", "/u/", 1, "spool/*/part-*", 16, 0},
		{"coordinator receives, torn", "/u/", 1, "spool/*/part-*", 16, 2},
		{"agent sends", "/u/", 0, "update.a", 16, 0},
	} {
		if tt.spoiled > 0 && testing.Short() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				links := newTraffic(tt.under, 40)
				f := newFederation(t, 1, memory.Options{Delay: links.delay})
				huge(f)
				f.cfg.Standardize = false
				p := []*process{f.agents[0], f.coord}[tt.victim]
				f.agents[0].moment = links.begin
				f.start()
				<-links.news
				synctest.Wait()
				p.kill()
				links.mu.Lock()
				links.total = 0
				links.mu.Unlock()
				files, err := filepath.Glob(p.path(tt.file))
				if err != nil || len(files) != 1 {
					t.Fatalf("%v, files %v", err, files)
				}
				if info, err := os.Stat(files[0]); err != nil || tt.file != "update.a" &&
					(info.Size() > hugeChunks*wire.MaxChunkBytes || info.Size() <= (hugeChunks-1)*wire.MaxChunkBytes) {
					t.Errorf("%v, %v: want the length of the blob", info, err)
				}
				spoil(t, files[0], tt.spoiled)
				p.again()
				f.finished(time.Hour)
				f.checkOnce(tt.name)
				links.mu.Lock()
				defer links.mu.Unlock()
				if most := hugeChunks - 40 + tt.flying + tt.spoiled; links.total > most ||
					len(links.seen) != hugeChunks {
					t.Errorf("%d chunks travelled after the crash, want at most %d; %d in all", links.total, most,
						len(links.seen))
				}
				if again := hugeChunks - 40 + tt.spoiled; links.total < again {
					t.Errorf("%d chunks travelled after the crash, fewer than were missing: %d", links.total, again)
				}
				if n := len(events[training.LocalTrainingFinished](f)); n != 1 {
					t.Errorf("trained %d times", n)
				}
			})
		})
	}
}

// spoil overwrites the first n chunks of a file with zeros.
func spoil(t *testing.T, path string, n int) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil && n > 0 {
		_, err = file.WriteAt(make([]byte, n*wire.MaxChunkBytes), 0)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTransferFilesGo checks that no temporary files remain after a round.
func TestTransferFilesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		huge(f)
		f.start()
		f.finished(time.Hour) // one agent has received the announcement of the end of the run
		wait(time.Second)     // wait until the other agent has received it as well
		f.stop()
		for _, a := range f.agents {
			if _, err := os.Stat(a.path("model.part")); err == nil {
				t.Errorf("%s has a part of a model", a.id)
			}
			found, err := store.LocalDisk.NewRecordSlots(a.dir, state.Update).Load(nil)
			if !errors.Is(err, store.ErrNoRecord) {
				t.Errorf("%s has an update of %d bytes, %v", a.id, len(found.Body), err)
			}
		}
		if left, err := os.ReadDir(f.coord.path("spool")); err != nil || len(left) > 0 {
			t.Errorf("%v; the coordinator has %v", err, left)
		}
	})
}

// words records the output of a logger.
type words struct {
	mu  sync.Mutex
	all strings.Builder
}

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(p)
}

func (w *words) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.all.String(), text)
}

// TestDiskFullInTransfer checks that a full disk at the start of a transfer, on either side, is logged and delays the
// round until space is free.
func TestDiskFullInTransfer(t *testing.T) {
	for _, tt := range []struct {
		name   string
		victim int // index of the affected process; 1 is the coordinator
		file   string
		says   string
	}{
		{"agent", 0, "model.part", "cannot store a received part of a model or task"},
		{"coordinator", 1, "spool/1", "cannot store a received part of an update"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, log := newFederation(t, 1, memory.Options{}), &words{}
				huge(f)
				f.cfg.Standardize = false
				f.cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
				p := []*process{f.agents[0], f.coord}[tt.victim]
				mend := make(chan func(), 1)
				f.agents[0].moment = func(m any) {
					if _, ok := m.(agentround.WorkStarted); ok {
						mend <- obstruct(t, p.path(tt.file))
					}
				}
				f.start()
				undo := <-mend
				wait(25 * time.Second)
				if !log.has(tt.says) || len(events[round.UpdateAccepted](f)) > 0 {
					t.Errorf("the log does not say %q, or the update was accepted with a full disk", tt.says)
				}
				undo()
				f.finished(time.Hour)
				f.checkOnce(tt.name)
			})
		})
	}
}

// TestTransfersAreBounded checks that the updates in buffers never exceed the configured limit, and that all updates
// are nevertheless received.
func TestTransfersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 5, memory.Options{})
		huge(f)
		f.cfg.Standardize, f.cfg.MaxBufferedUpdateBytes = false, 10<<20
		f.start()
		f.finished(time.Hour)
		most := 0
		for _, x := range events[uploads.UploadStatusChanged](f) {
			most = max(most, x.BufferedBytes)
		}
		if most > 10<<20 || most < 8<<20 {
			t.Errorf("at most %d bytes were on their way, want two updates of 4.2 MB", most)
		}
		if last := events[uploads.UploadStatusChanged](f); last[len(last)-1].BufferedBytes != 0 {
			t.Errorf("room was not given back: %+v", last[len(last)-1])
		}
	})
}
