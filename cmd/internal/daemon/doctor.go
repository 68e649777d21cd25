package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fedmesh/fedmesh/cmd/internal/doctor"
	"github.com/fedmesh/fedmesh/cmd/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// AgentTarget returns what the doctor examines for an agent.
func AgentTarget(s *settings.Agent) (*doctor.Target, error) {
	cfg, err := s.Config()
	if err != nil {
		return nil, err
	}
	broker, err := brokerOf(&s.Broker, cfg.Topics, cfg.ID)
	if err != nil {
		return nil, err
	}
	broker.Announced = cfg.Topics.Round()
	broker.Reads = []string{broker.Announced, cfg.Topics.Device(cfg.ID), cfg.Topics.Presence(cfg.ID)}
	return &doctor.Target{
		// the model, the update, and a successor of each
		Program: "agentd", StateDir: cfg.Dir, Needs: 4 * int64(cfg.MaxModel), Broker: broker,
		Data: func() error { return readable(s.Data.CSV) },
	}, nil
}

// CoordinatorTarget returns what the doctor examines for a coordinator.
func CoordinatorTarget(s *settings.Coordinator) (*doctor.Target, error) {
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
	return &doctor.Target{
		Program: "coordinator", StateDir: cfg.Dir, Needs: int64(cfg.MaxBuffered) + leastFree, Broker: broker,
	}, nil
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

// readable returns an error if the file cannot be read or is empty.
func readable(path string) (err error) {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := bufio.NewReader(f).ReadByte(); errors.Is(err, io.EOF) {
		return fmt.Errorf("%s is empty", path)
	} else if err != nil {
		return err
	}
	return nil
}
