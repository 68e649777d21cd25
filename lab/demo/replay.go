package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/internal/agentd"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/lab/air"
	"github.com/fedmesh/fedmesh/lab/slow"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

const (
	// window is how many messages of a station may be under way to its agent.
	window = 64
	// knock is how often a station repeats its first words until its agent hears it.
	knock = 100 * time.Millisecond
	// settle is how long an agent has until what it has heard is on its disk. The coordinator waits for one that needs
	// longer.
	settle = 11 * time.Second
	// stall is how long nothing may come of what is waited for.
	stall = 30 * time.Second
)

// replay says what the stations have said, again, as fast as their agents take it.
type replay struct {
	url     string
	streams []air.StationData
	rounds  wire.ModelVersion // of the last model
	log     *slog.Logger
	moved   chan struct{} // a count has changed

	mu          sync.Mutex
	sent, taken map[string]int               // messages of a station
	models      map[string]wire.ModelVersion // that the agents predict with
}

func newReplay(url string, streams []air.StationData, rounds int, log *slog.Logger) *replay {
	return &replay{url: url, streams: streams, rounds: wire.ModelVersion(rounds), log: log,
		moved: make(chan struct{}, 1), sent: map[string]int{}, taken: map[string]int{},
		models: map[string]wire.ModelVersion{}}
}

// change changes counts.
func (r *replay) change(do func()) {
	r.mu.Lock()
	do()
	r.mu.Unlock()
	select {
	case r.moved <- struct{}{}:
	default: // somebody will look
	}
}

// now returns whether counts are as wanted.
func (r *replay) now(want func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return want()
}

// until waits until counts are as wanted. It fails if none changes for a while.
func (r *replay) until(ctx context.Context, want func() bool) error {
	late := time.NewTimer(stall)
	defer late.Stop()
	for {
		if r.now(want) {
			return nil
		}
		select {
		case <-r.moved:
			late.Reset(stall)
		case <-late.C:
			return fmt.Errorf("nothing has come for %s", stall)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// all returns whether something holds of each station.
func (r *replay) all(holds func(station string) bool) func() bool {
	return func() bool {
		for _, s := range r.streams {
			if !holds(s.Station) {
				return false
			}
		}
		return true
	}
}

// observer is told what an agent does.
type observer struct {
	*replay
	agent string
}

// Observe implements observe.Observer.
func (o observer) Observe(event observe.Event) {
	if f, ok := event.(predict.ModelInUseChanged); ok {
		o.change(func() { o.models[o.agent] = f.Version })
	}
}

// host runs an agent.
func (r *replay) host(fed *federation) func(context.Context, *settings.Agent) error {
	return func(ctx context.Context, s *settings.Agent) error {
		heard := func(e mqtt.Event) {
			if m, ok := e.(mqtt.MessageReceived); ok && m.Topic == topicOf(s.ID) {
				r.change(func() { r.taken[s.ID]++ })
			}
		}
		return agentd.Run(ctx, s, agentd.Options{Logger: r.log, Metrics: fed.ofAgents,
			Trainer:  slow.Trainer{Trainer: training.LocalTrainer{}, StepTime: s.Compute.DeclaredStepTime},
			Observer: observer{r, s.ID}, WrapConnection: func(c mqtt.Conn) mqtt.Conn {
				return newTappedConn(c,
					heard)
			}})
	}
}

// dial returns a connection with the site's broker.
func (r *replay) dial(ctx context.Context, name string, o mqtt.Options) (*mqtt.Session, error) {
	o.URL, o.ClientID, o.Logger = r.url, name, r.log
	return dialUp(ctx, o)
}

// talk opens a connection for the stations.
func (r *replay) talk(ctx context.Context) (*mqtt.Session, error) {
	conn, err := r.dial(ctx, "stations", mqtt.Options{OutboxMessages: window * len(r.streams)})
	if err == nil {
		go func() {
			for range conn.Events() { // nothing is subscribed to
			}
		}()
	}
	return conn, err
}

// train has the stations say what is trained on, and returns when the agents have it on their disks.
func (r *replay) train(ctx context.Context) error {
	conn, err := r.talk(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for heard := r.all(func(s string) bool { return r.taken[s] > 0 }); !r.now(heard); {
		for _, s := range r.streams {
			if err := r.publish(conn, s.Station, s.TrainHours[0]); err != nil {
				return err
			}
		}
		if err := sleep(ctx, knock); err != nil {
			return err
		}
	}
	r.change(func() {
		clear(r.sent)
		clear(r.taken)
	})
	if err := r.say(ctx, conn, func(s air.StationData) []air.StationHour { return s.TrainHours }); err != nil {
		return err
	}
	return sleep(ctx, settle)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// say sends hours of all stations, the first of each, then the second, and returns when the agents have taken them.
func (r *replay) say(ctx context.Context, conn mqtt.Conn, of func(air.StationData) []air.StationHour) error {
	err := inTurn(r.streams, of, func(station string, h air.StationHour) error {
		err := r.until(ctx, func() bool { return r.sent[station]-r.taken[station] < window })
		if err != nil {
			return fmt.Errorf("%s: its agent does not take what it says: %w", station, err)
		}
		return r.publish(conn, station, h)
	})
	if err != nil {
		return err
	}
	return r.until(ctx, r.all(func(s string) bool { return r.taken[s] >= r.sent[s] }))
}

func (r *replay) publish(conn mqtt.Conn, station string, h air.StationHour) error {
	if err := conn.Publish(mqtt.Message{Topic: topicOf(station), Payload: h.Payload}); err != nil {
		return fmt.Errorf("the replay of %s: %w", station, err)
	}
	r.change(func() { r.sent[station]++ })
	return nil
}

// layOutStreams lays out a federation whose agents hear their stations.
func layOutStreams(o Options, dir string, log *slog.Logger) (*federation, error) {
	streams, err := air.LoadStations()
	if err != nil {
		return nil, err
	}
	f, err := writeStreams(dir, streams)
	if err != nil {
		return nil, err
	}
	s, err := openSite(dir, log)
	if err != nil {
		return nil, err
	}
	fed, err := newFederation(o, f, streamed{together{&o, f}, s.url}, dir, log)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	quiet, err := logging.New(o.Stderr, logging.Options{Level: "error", Format: "text"}) // anomalies are warnings
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	r := newReplay(s.url, streams, o.rounds(), quiet)
	fed.host, fed.before, fed.after, fed.site = r.host(fed), r.train, r.foretold, s
	return fed, nil
}
