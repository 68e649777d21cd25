package host_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program contains an event loop whose handlers record that they were called.
type program struct {
	*host.EventLoop
	events chan mqtt.Event
	did    []string
	stop   error
	at     time.Time
}

func (p *program) run(ctx context.Context) error {
	p.AllowJobs(ctx)
	defer p.CancelAndAwaitJobs()
	return p.Run(ctx, p.events, host.LoopHandlers{
		BeforeWait:   func() error { return p.stop },
		OnMQTTEvent:  func(e mqtt.Event) { p.did = append(p.did, fmt.Sprintf("%T", e)) },
		OnDeadline:   func(now time.Time) { p.did, p.at = append(p.did, "tick"), now.Add(time.Hour) },
		NextDeadline: func() time.Time { return p.at },
	})
}

func newProgram() *program {
	return &program{EventLoop: host.NewEventLoop(nil), events: make(chan mqtt.Event), at: time.Now().Add(time.Second)}
}

func TestOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.run(ctx) }()
		p.events <- mqtt.LinkUp{}
		synctest.Wait()
		p.Go(func() { p.RunOnLoop(func() { p.did = append(p.did, "result") }) })
		synctest.Wait()
		<-time.After(2 * time.Second)
		if err := p.CheckAlive(t.Context()); err != nil {
			t.Error(err)
		}
		if err := p.RunOnLoopContext(t.Context(), func() { p.did = append(p.did, "asked") }); err != nil {
			t.Error(err)
		}
		end()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
		if want := []string{"mqtt.LinkUp", "result", "tick", "asked"}; !slices.Equal(p.did, want) {
			t.Errorf("did %q, want %q", p.did, want)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.CheckAlive(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a program that has ended is alive: %v", err)
		}
	})
}

// TestOwnerEnds checks that Run returns the error of a handler, or the error for a closed connection, after all jobs
// have ended.
func TestOwnerEnds(t *testing.T) {
	stopped := errors.New("stopped")
	for _, tt := range []struct {
		name string
		end  func(p *program)
		want error
	}{
		{"a turn", func(p *program) { p.RunOnLoop(func() { p.stop = stopped }) }, stopped},
		{"the connection", func(p *program) { close(p.events) }, host.ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProgram()
			done, ended := make(chan error, 1), make(chan struct{})
			go func() { done <- p.run(t.Context()) }()
			synctest.Wait()
			p.Go(func() {
				<-p.Context().Done()
				close(ended)
			})
			tt.end(p)
			err := <-done
			select {
			case <-ended:
			default:
				t.Errorf("%s: a job goes on", tt.name)
			}
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: ended with %v, want %v", tt.name, err, tt.want)
			}
		})
	}
}

// TestPause checks that a paused event loop still responds to CheckAlive, but processes no events.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		done := make(chan error, 1)
		ctx, end := context.WithCancel(t.Context())
		go func() { done <- p.run(ctx) }()
		_ = p.RunOnLoopContext(t.Context(), func() {
			if err := p.PauseLoop(time.Minute); err != nil {
				t.Error(err)
			}
			p.did = append(p.did, "waited")
		})
		if err := p.CheckAlive(t.Context()); err != nil {
			t.Error(err)
		}
		p.events <- mqtt.LinkUp{} // This event must be processed after the pause.
		synctest.Wait()
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.did = slices.DeleteFunc(p.did, func(what string) bool { return what == "tick" })
		if !slices.Equal(p.did, []string{"waited", "mqtt.LinkUp"}) {
			t.Errorf("did %q", p.did)
		}
		if err := p.PauseJob(time.Minute); !errors.Is(err, context.Canceled) {
			t.Errorf("a pause of a program that has ended: %v", err)
		}
	})
}

// TestQueue checks that events that are emitted while another event is being processed are delivered afterwards, in
// order.
func TestQueue(t *testing.T) {
	var q host.EventQueue[string]
	var took []string
	var take func(string) bool
	take = func(e string) bool {
		if e == "a" {
			q.ProcessWithFollowUps("b", take)
			q.ProcessWithFollowUps("c", take)
			q.PushFront("n")
		}
		took = append(took, e)
		return e != "c"
	}
	q.ProcessWithFollowUps("a", take)
	q.ProcessWithFollowUps("d", take) // After take has returned false, no event must be delivered.
	if want := []string{"a", "n", "b", "c"}; !slices.Equal(took, want) {
		t.Errorf("took %q, want %q", took, want)
	}
}

func TestSigner(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	s := host.Signer{Federation: "plant", Sender: "press", Epoch: 3, Key: key, SignatureScheme: wire.Ed25519{}}
	var mu sync.Mutex
	seen := map[uint64]bool{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				e, err := wire.ParseEnvelope(s.SignedEnvelope(wire.TypeHello, 7, 9, []byte("x")))
				if err == nil {
					err = e.Verify(key.Public().(ed25519.PublicKey))
				}
				mu.Lock()
				if err != nil || seen[e.Sequence] || e.Sender != "press" || e.Epoch != 3 || e.Run != 7 || e.Round != 9 {
					t.Errorf("%+v, %v", e.Header, err)
				}
				seen[e.Sequence] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	s.SkipSequencePast(1000)
	s.SkipSequencePast(10)
	if e, err := wire.ParseEnvelope(s.SignedEnvelope(wire.TypeHello, 7, 9, nil)); err != nil || e.Sequence != 1001 {
		t.Errorf("sequence %d, %v, want 1001", e.Sequence, err)
	}
}

func TestWhyDropped(t *testing.T) {
	type reason string
	err := fmt.Errorf("outer: %w", host.NewMessageDropError(reason("foreign"), "topic %q", "x"))
	if r, why := host.DropReasonOf(err, reason("malformed"), "version"); r != "foreign" || why.Error() != `topic "x"` {
		t.Errorf("%s, %v", r, why)
	}
	if r, _ := host.DropReasonOf(&wire.ProtocolVersionError{MessageVersion: 7}, reason("malformed"),
		"version"); r != "version" {
		t.Errorf("of another version: %s", r)
	}
	r, why := host.DropReasonOf(errors.New("short"), reason("malformed"), "version")
	if r != "malformed" || why.Error() != "short" {
		t.Errorf("%s, %v", r, why)
	}
}

// TestLine checks that the jobs of a SerialJobQueue run one after another in the order of submission, even if the
// program ends while some jobs wait.
func TestLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProgram()
		p.AllowJobs(t.Context())
		l, did, gate := host.NewSerialJobQueue(p.EventLoop), "", make(chan struct{})
		for _, name := range []string{"a", "b", "c"} {
			l.Enqueue(func() {
				<-gate
				did += name
			})
		}
		gate <- struct{}{}
		synctest.Wait()
		if did != "a" {
			t.Errorf("did %q while the second one waits", did)
		}
		close(gate)
		synctest.Wait()
		l.Enqueue(func() { did += "d" })
		p.CancelAndAwaitJobs()
		if did != "abcd" {
			t.Errorf("did %q", did)
		}
	})
}
