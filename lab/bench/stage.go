package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/wire"
)

// stage holds the contestants of one table cell while they are measured.
type stage struct {
	ctx     context.Context
	options Options
	cell    *cell
	payload []byte
	closers []func()
}

func (s *stage) close() {
	for _, f := range slices.Backward(s.closers) {
		f()
	}
}

// wants reports whether Options.Only selects at least one of the named contestants.
func (s *stage) wants(names ...string) bool {
	return len(s.options.Only) == 0 ||
		slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.options.Only, name) })
}

// connect starts the broker and connects all selected contestants. Each contestant has its own connections.
func (s *stage) connect() (all []contestant, err error) {
	o, n := s.options, s.cell.agents
	b, err := starters[s.cell.broker](n)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, b.stop)
	for name, v := range map[string]struct {
		federation wire.FederationName
		dir        string
	}{ours: {federation, o.Dir}, oursQuick: {inMemory, o.Memory}} {
		if !s.wants(name) {
			continue
		}
		f, err := connectFleet(s.ctx, &o, v.federation, v.dir, b, n, s.cell.dim)
		s.closers = append(s.closers, f.close)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, contestant{name, f.round})
	}
	if s.wants(paho0, paho1) {
		p, err := connectPaho(b, n, s.payload)
		s.closers = append(s.closers, p.close)
		if err != nil {
			return nil, err
		}
		for qos, name := range []string{paho0, paho1} {
			all = append(all, contestant{name,
				func(ctx context.Context) (sample, error) { return p.round(ctx, byte(qos)) }})
		}
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
	slices.SortFunc(all, func(a, b contestant) int {
		return slices.Index(columns, a.name) - slices.Index(columns, b.name)
	})
	return all, nil
}
