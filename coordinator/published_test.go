package coordinator_test

import (
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// blobsAtBroker returns the number of retained parts of each blob.
func blobsAtBroker(f *federation) map[string]int {
	conn := f.broker.Connect("looker", nil)
	defer conn.Close()
	conn.Subscribe(mqtt.AtMostOnce, "fl/v1/"+fedName+"/m/#")
	parts := map[string]int{}
	for {
		synctest.Wait()
		select {
		case e := <-conn.Events():
			if m, ok := e.(mqtt.MessageReceived); ok && m.Retained {
				parts[path.Base(path.Dir(m.Topic))]++
			}
		default:
			return parts
		}
	}
}

// TestOldModelsGoAfterRestarts checks that the broker retains only the models of the last two rounds, however often the
// coordinator was killed.
func TestOldModelsGoAfterRestarts(t *testing.T) {
	for _, at := range []string{"closed", "announcing"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFederation(t, 2, memory.Options{})
			large(f)
			f.cfg.Standardize, f.cfg.Round.MaxAggregations, f.cfg.Round.PauseBetweenRounds = false, 6, time.Minute
			dead := make(chan struct{}, 1)
			parts, last := 0, wire.RoundID(0)
			f.coord.moment = func(m any) {
				switch m := m.(type) {
				case round.RoundClosed:
					if at == "closed" && m.Round <= 4 && m.Round > last {
						last = m.Round
						f.coord.kill()
						dead <- struct{}{}
					}
				case mqtt.Message: // kill the coordinator during a publication
					if strings.Contains(m.Topic, "/m/") {
						parts++
					}
					if at == "announcing" && parts%7 == 4 && strings.Contains(m.Topic, "/m/") && parts < 30 {
						f.coord.kill()
						dead <- struct{}{}
					}
				}
			}
			f.start()
			for range 4 {
				<-dead
				wait(time.Second)
				f.coord.again()
			}
			f.finished(3 * time.Hour)
			wait(time.Minute)
			got := blobsAtBroker(f)
			models := events[aggregation.ModelReady](f)
			want := map[string]int{}
			for _, m := range models[len(models)-2:] {
				want[m.Hash.TopicLevel()] = wire.ChunkCount(m.Bytes) + 1
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d blobs are at the broker, want 2: %v", at, len(got), got)
			}
			for hash, n := range want {
				if got[hash] != n {
					t.Errorf("%s: %d parts of %s, want %d", at, got[hash], hash, n)
				}
			}
		})
	}
}

// forgetful is a connection to a broker that accepts messages without retaining them.
type forgetful struct {
	mqtt.Conn
	forgets *atomic.Bool
}

func (c forgetful) Publish(m mqtt.Message) error {
	if c.forgets.Load() && strings.HasSuffix(m.Topic, "/2") {
		return nil
	}
	return c.Conn.Publish(m)
}

// TestForgetfulBroker checks that a model which the broker does not retain is reported and published again with
// backoff. The run continues once the broker works.
func TestForgetfulBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFederation(t, 2, memory.Options{})
		large(f)
		f.cfg.Standardize, f.cfg.Round.MaxAggregations = false, 1
		forgets, connect := &atomic.Bool{}, f.connect
		forgets.Store(true)
		f.connect = func(clientID string, will func() mqtt.Message) mqtt.Conn {
			return forgetful{connect(clientID, will), forgets}
		}
		f.start()
		wait(5 * time.Minute)
		told := events[publish.BlobReadBackEnded](f)
		if len(told) < 4 || len(told) > 12 || told[0].Missing != 2 {
			t.Errorf("in five minutes: %+v", told)
		}
		if n := len(events[round.RoundClosed](f)); n > 0 {
			t.Errorf("%d rounds were closed", n)
		}
		forgets.Store(false)
		f.finished(time.Hour)
	})
}
