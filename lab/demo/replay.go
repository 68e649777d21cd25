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
	// window is the maximum number of a station's messages in flight to its agent.
	window = 64
	// knock is the interval at which a station repeats its first message until its agent receives it.
	knock = 100 * time.Millisecond
	// settle is the time that agents are given to write received readings to disk. If an agent needs longer, the
	// coordinator waits for it.
	settle = 11 * time.Second
	// stall is the maximum time without progress before a wait fails.
	stall = 30 * time.Second
)

// replay publishes the stations' recorded readings as fast as their agents receive them.
type replay struct {
	url     string
	streams []air.StationData
	rounds  wire.ModelVersion // version of the final model of the run
	log     *slog.Logger
	moved   chan struct{} // receives a value when one of the fields below has changed

	mu          sync.Mutex
	sent, taken map[string]int               // number of published (sent) and received (taken) messages by station
	models      map[string]wire.ModelVersion // version of the model that each agent uses for forecasts
}

func newReplay(url string, streams []air.StationData, rounds int, log *slog.Logger) *replay {
	return &replay{url: url, streams: streams, rounds: wire.ModelVersion(rounds), log: log,
		moved: make(chan struct{}, 1), sent: map[string]int{}, taken: map[string]int{},
		models: map[string]wire.ModelVersion{}}
}

// change calls do with the mutex held and then notifies the method until of the change.
func (r *replay) change(do func()) {
	r.mu.Lock()
	do()
	r.mu.Unlock()
	select {
	case r.moved <- struct{}{}:
	default: // A signal is already pending.
	}
}

// now evaluates the condition want with the mutex held.
func (r *replay) now(want func() bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return want()
}

// until waits until the condition want is true. It returns an error if nothing changes for the duration stall.
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
			return fmt.Errorf("no progress for %s", stall)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// all returns a condition that is true if holds is true for each station.
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

// observer records which model version one agent uses for forecasts.
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

// host returns a function that runs one agent and counts the readings that the agent receives.
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

// dial returns a connection to the site's broker.
func (r *replay) dial(ctx context.Context, name string, o mqtt.Options) (*mqtt.Session, error) {
	o.URL, o.ClientID, o.Logger = r.url, name, r.log
	return dialUp(ctx, o)
}

// talk opens a connection for publishing the stations' readings.
func (r *replay) talk(ctx context.Context) (*mqtt.Session, error) {
	conn, err := r.dial(ctx, "stations", mqtt.Options{OutboxMessages: window * len(r.streams)})
	if err == nil {
		go func() {
			for range conn.Events() { // Discard all events, because this session has no subscriptions.
			}
		}()
	}
	return conn, err
}

// train publishes the training readings and waits until the agents have received them and had time to write them to
// disk.
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

// say publishes the hours that `of` selects, alternating between stations. It returns when the agents have received all
// of them.
func (r *replay) say(ctx context.Context, conn mqtt.Conn, of func(air.StationData) []air.StationHour) error {
	err := inTurn(r.streams, of, func(station string, h air.StationHour) error {
		err := r.until(ctx, func() bool { return r.sent[station]-r.taken[station] < window })
		if err != nil {
			return fmt.Errorf("agent of station %s does not receive its readings: %w", station, err)
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
		return fmt.Errorf("publish readings of station %s: %w", station, err)
	}
	r.change(func() { r.sent[station]++ })
	return nil
}

// layOutStreams prepares a federation whose agents receive readings over MQTT and publish forecasts.
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
	quiet, err := logging.New(o.Stderr, logging.Options{Level: "error", Format: "text"})
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	r := newReplay(s.url, streams, o.rounds(), quiet)
	fed.host, fed.before, fed.after, fed.site = r.host(fed), r.train, r.foretold, s
	return fed, nil
}
