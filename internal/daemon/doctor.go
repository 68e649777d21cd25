package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/datacheck"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// AgentTarget returns what the doctor examines for an agent.
func AgentTarget(s *settings.Agent) (*doctor.Target, error) {
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	broker, err := brokerOf(s.Uplink(), cfg.Topics, cfg.ID)
	if err != nil {
		return nil, err
	}
	broker.Presence = cfg.Topics.Presence(cfg.ID)
	broker.Reads = []string{cfg.Topics.Round(), cfg.Topics.Device(cfg.ID), broker.Presence}
	announced := &announcement{settings: s, err: errors.New("the broker cannot be reached")}
	t := &doctor.Target{
		// the model, the update, and a successor of each
		Program: "agentd", Federation: s.Name, StateDir: filepath.Clean(s.StateDir),
		Needs: 4 * int64(cfg.MaxModel), Broker: broker,
		Announced: announced.examine,
		Data:      func(context.Context) []doctor.Finding { return examineData(s, cfg.Data, announced) },
	}
	if s.Data.Source == data.MQTT {
		site := s.Readings.Site()
		own := cfg.Topics.ClientID(cfg.ID)
		o, _, err := site.Session(own + "-data")
		if err != nil {
			return nil, err
		}
		o.ClientID = own + "-check" // the agent may run
		t.Site = &doctor.Broker{Options: o, Reads: s.Data.Topics()}
	}
	return t, nil
}

// announcement is the task that a doctor has found at a broker.
type announcement struct {
	settings *settings.Agent
	task     *datacheck.Task // nil = none was found
	err      error           // why
}

// examine looks for the announcement of the coordinator at a broker.
func (a *announcement) examine(ctx context.Context, url string) doctor.Finding {
	at := *a.settings
	at.Broker.URLs = config.OneOrMore{url}
	t, err := datacheck.Announced(ctx, &at)
	missing, unheard := (*datacheck.Missing)(nil), (*datacheck.UnheardError)(nil)
	f := doctor.Finding{About: "coordinator"}
	switch {
	case err == nil && t.Unheard != "":
		a.task, a.err = t, nil
		f.State, f.Found, f.Mend = doctor.Bad, "it announces the task "+t.Name+" and ignores this device", t.Unheard
		return f
	case errors.As(err, &unheard):
		a.err = errors.New("the coordinator ignores this device")
		f.State, f.Found, f.Mend = doctor.Bad, a.err.Error(), unheard.Mend
		return f
	case err == nil:
		a.task, a.err = t, nil
		f.State, f.Found = doctor.Good, "it announces the task "+t.Name
		return f
	case errors.As(err, &missing) && missing.Reason == agent.MissingNone:
		f.State, f.Mend = doctor.Warn, missing.Mend
	case errors.As(err, &missing):
		f.State, f.Mend = doctor.Bad, missing.Mend
	default:
		f.State = doctor.Warn
	}
	if f.Found = err.Error(); a.task == nil {
		a.err = err
	}
	return f
}

// examineData holds the data against the announced task.
func examineData(s *settings.Agent, source data.Source, announced *announcement) []doctor.Finding {
	bad := func(err error) []doctor.Finding {
		return []doctor.Finding{{About: "data", State: doctor.Bad, Found: err.Error(),
			Mend: "correct the section data"}}
	}
	if s.Data.Source == data.Lines {
		if err := source.Probe(); err != nil {
			return bad(err)
		}
	}
	unknown := ""
	if announced.task == nil {
		unknown = announced.err.Error()
	}
	r, err := datacheck.Run(s, announced.task, unknown)
	if err != nil {
		return bad(err)
	}
	return r.Findings()
}

// CoordinatorTargets returns what the doctor examines for a coordinator. open is CoordinatorOptions.Store.
func CoordinatorTargets(s *settings.Coordinator, open func(*settings.Coordinator) (replica.Store, error)) (
	[]*doctor.Target, error) {
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	agents, err := s.CountAgents()
	if err != nil {
		return nil, err
	}
	broker, err := brokerOf(&s.Broker, cfg.Topics, wire.CoordinatorID)
	if err != nil {
		return nil, err
	}
	broker.Reads = []string{cfg.Topics.Round(), cfg.Topics.Updates(), cfg.Topics.Presences(), cfg.Topics.Statuses()}
	broker.Retains, broker.Queue = true, min(max(leastQueue, agents), mostQueue)
	t := &doctor.Target{
		Program: "coordinator", StateDir: cfg.Dir, Needs: int64(cfg.MaxBuffered) + leastFree, Broker: broker,
	}
	if s.Cluster.On() {
		t.Cluster = func(ctx context.Context) ([]doctor.Finding, bool) { return examineCluster(ctx, s, open) }
	}
	return []*doctor.Target{t}, nil
}

// engineWithin is how long the cluster's engine has for an answer.
const engineWithin = 20 * time.Second

// examineCluster looks who leads. It reports whether anybody does, whose session at the broker is not to be taken.
func examineCluster(ctx context.Context, s *settings.Coordinator,
	open func(*settings.Coordinator) (replica.Store, error)) ([]doctor.Finding, bool) {
	found := func(state doctor.State, mend, format string, args ...any) []doctor.Finding {
		return []doctor.Finding{{About: "cluster", State: state, Found: fmt.Sprintf(format, args...), Mend: mend}}
	}
	const reach = "check cluster.nats, and that two of three servers of NATS run, with JetStream"
	values, err := open(s)
	if err != nil {
		return found(doctor.Bad, reach, "%v", err), false
	}
	ctx, cancel := context.WithTimeout(ctx, engineWithin)
	defer cancel()
	for {
		name, lives, err := replica.Leader(ctx, values, host.RealTime{})
		switch {
		case err == nil && lives:
			return found(doctor.Good, "", "%s leads", name), true
		case err == nil && name != "":
			return found(doctor.Warn, "see that a coordinator runs; one that stands by takes the lead 15 s later",
				"%s has led, and has not shown for 5 s that it is there", name), false
		case err == nil:
			return found(doctor.Warn, "start a coordinator", "nobody leads"), false
		case errors.Is(err, replica.ErrNone):
			return found(doctor.Good, "", "it is empty: the first coordinator that is started founds it"), false
		case ctx.Err() != nil:
			return found(doctor.Bad, reach, "it does not answer: %v", err), false
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

const (
	leastQueue = 500      // messages, for any number of agents
	mostQueue  = 50_000   // message ids end at 65535
	leastFree  = 64 << 20 // bytes, in addition to the updates of a round
)

func brokerOf(b *settings.Broker, t mqtt.Topics, id wire.AgentID) (d doctor.Broker, err error) {
	d.Options, _, err = b.Session(t.ClientID(id))
	d.Loop = t.Loop(id)
	return d, err
}
