package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/slow"
	"github.com/fedmesh/fedmesh/cmd/internal/daemon"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/broker"
	"github.com/fedmesh/fedmesh/round"
)

// site is the broker over which the stations are heard: Mosquitto where it is installed, else the embedded one.
type site struct {
	url   string
	close func() error
}

func openSite(dir string, log *slog.Logger) (*site, error) {
	for _, name := range []string{"mosquitto", "/usr/sbin/mosquitto"} { // where Debian keeps it
		if program, err := exec.LookPath(name); err == nil {
			return openMosquitto(program, dir)
		}
	}
	s, err := broker.Start(broker.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	return &site{s.URL(), s.Close}, nil
}

func openMosquitto(program, dir string) (*site, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a port that is free
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	path := filepath.Join(dir, "mosquitto.conf")
	conf := "listener " + port + " " + host + "\nallow_anonymous true\nset_tcp_nodelay true\n"
	if err := errors.Join(l.Close(), os.WriteFile(path, []byte(conf), 0o600)); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-c", path)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &site{"tcp://" + net.JoinHostPort(host, port), func() error {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait() // it was interrupted
		return nil
	}}, nil
}

// replay says what the stations have said, again, as soon as each agent hears its own.
type replay struct {
	url     string
	streams []stream
	log     *slog.Logger

	mu    sync.Mutex
	heard map[string]uint64 // values that agents have got
}

const (
	// replayTick and replayMost pace the stations: 2,000 messages a second together.
	replayTick = 5 * time.Millisecond
	replayMost = 10
	// knock is how often a station repeats its first words until its agent hears it.
	knock = 100 * time.Millisecond
	// settle is how long an agent may take until what it has heard is on its disk, and told.
	settle = 25 * time.Second
)

// hears is the observer of an agent.
type hears struct {
	*replay
	agent string
}

// Observe implements agent.Observer.
func (h hears) Observe(fact agent.Fact) {
	f, ok := fact.(agent.DataCollected)
	if !ok {
		return
	}
	came := uint64(0)
	for _, c := range f.Columns {
		came += c.Came
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard[h.agent] = came
}

// ObserveRound implements agent.Observer.
func (hears) ObserveRound(round.AgentFact) {}

// host runs an agent.
func (r *replay) host(fed *federation) func(context.Context, *settings.Agent) error {
	return func(ctx context.Context, s *settings.Agent) error {
		return daemon.RunAgent(ctx, s, daemon.AgentOptions{Logger: fed.log, Metrics: fed.ofAgents,
			Trainer:  slow.Trainer{Trainer: agent.Learner{}, StepTime: s.Compute.StepTime},
			Observer: hears{r, s.ID}})
	}
}

// run says everything once, after the first words, and returns when all of it has come and is on the agents' disks.
func (r *replay) run(ctx context.Context) error {
	conn, err := mqtt.Dial(context.WithoutCancel(ctx), mqtt.Options{URL: r.url, ClientID: "stations", Logger: r.log})
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		for range conn.Events() { // nothing is subscribed to
		}
	}()
	say := func(station string, h hour) error {
		return conn.Publish(mqtt.Message{Topic: topicOf(station), Payload: h.payload})
	}
	tick := time.NewTicker(knock)
	defer tick.Stop()
	next := func() error {
		select {
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for !r.all(func(stream) uint64 { return 1 }) {
		if err := next(); err != nil {
			return err
		}
		for _, s := range r.streams {
			if err := say(s.station, s.train[0]); err != nil && !errors.Is(err, mqtt.ErrDown) {
				return err
			}
		}
	}
	tick.Reset(replayTick)
	n := 0
	err = inTurn(r.streams, func(station string, h hour) error {
		if n++; n%replayMost == 0 {
			if err := next(); err != nil {
				return err
			}
		}
		if err := say(station, h); err != nil {
			return fmt.Errorf("the replay of %s: %w", station, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	tick.Reset(settle)
	for range 3 {
		if err := next(); err != nil {
			return err
		}
		if r.all(values) {
			return nil
		}
	}
	return errors.New("the agents have not heard all that their stations said")
}

// all reports whether each agent has got so many values.
func (r *replay) all(many func(stream) uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.streams {
		if r.heard[s.station] < many(s) {
			return false
		}
	}
	return true
}

// values is how many a station sends, without its first words.
func values(s stream) (n uint64) {
	for _, h := range s.train {
		n += uint64(len(h.readings))
	}
	return n
}

// layOutStreams lays out a federation whose agents hear their stations.
func layOutStreams(o Options, dir string, log *slog.Logger) (*federation, error) {
	streams, err := readStreams()
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
	r := &replay{url: s.url, streams: streams, log: log, heard: map[string]uint64{}}
	fed.host, fed.before, fed.site = r.host(fed), r.run, s
	return fed, nil
}
