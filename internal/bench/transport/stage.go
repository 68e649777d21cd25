package main

import (
	"context"
	"errors"
	"slices"
)

// stage is where the contestants of one cell meet.
type stage struct {
	ctx     context.Context
	options options
	cell    *cell
	payload []byte
	closers []func()
}

func (s *stage) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// wants tells whether one of the contestants takes part.
func (s *stage) wants(names ...string) bool {
	return s.options.only == nil || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.options.only, name) })
}

// connect connects everybody who takes part, each with connections of its own.
func (s *stage) connect() (all []contestant, err error) {
	o, n := s.options, s.cell.agents
	b, err := startBroker(s.cell.broker, n, false)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, b.stop)
	if s.wants(ours, oursQuick, oursBare) {
		f, err := connectFederation(s.ctx, b, n, s.payload)
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, f.close)
		for name, v := range map[string]variant{ours: {true, o.dir}, oursQuick: {true, o.quick}, oursBare: {false, o.quick}} {
			all = append(all, contestant{name, func(ctx context.Context) (sample, error) { return f.round(ctx, v) }})
		}
	}
	if s.wants(paho0, paho1) {
		rivals, err := s.connectPaho(b)
		if err != nil {
			return nil, err
		}
		all = append(all, rivals...)
	}
	if s.wants(relayed) {
		r, err := connectRelay(n, s.payload)
		if err != nil {
			return nil, err
		}
		s.closers = append(s.closers, r.close)
		all = append(all, contestant{relayed, r.round})
	}
	all = slices.DeleteFunc(all, func(c contestant) bool { return !s.wants(c.name) })
	slices.SortFunc(all, func(a, b contestant) int { return slices.Index(columns, a.name) - slices.Index(columns, b.name) })
	return all, nil
}

// connectPaho puts paho on the same broker. A burst that nothing paces can
// overrun the bounds of the broker's queues, and then messages are lost: paho
// gets a broker without those bounds, where there is one, and else no number.
func (s *stage) connectPaho(b *site) ([]contestant, error) {
	all, err := s.tryPaho(b)
	if err != nil || len(all) == 2 {
		return all, err
	}
	b, err = startBroker(s.cell.broker, s.cell.agents, true)
	if errors.Is(err, errBounded) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, b.stop)
	return s.tryPaho(b)
}

// tryPaho returns what paho can do on a broker without losing anything.
func (s *stage) tryPaho(b *site) (all []contestant, err error) {
	p, err := connectPaho(b, s.cell.agents, s.payload)
	s.closers = append(s.closers, p.close)
	if err != nil {
		return nil, err
	}
	for qos, name := range []string{paho0, paho1} {
		switch _, err := p.round(s.ctx, byte(qos)); {
		case errors.Is(err, errLost):
			s.cell.note("%s loses messages within the bounds that we ship: %v", name, err)
		case err != nil:
			return nil, err
		default:
			all = append(all, contestant{name, func(ctx context.Context) (sample, error) { return p.round(ctx, byte(qos)) }})
		}
	}
	return all, nil
}
