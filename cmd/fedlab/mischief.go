package main

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
)

// slowness is the value of --slow.
type slowness struct{ fraction, factor float64 }

// String implements pflag.Value.
func (s *slowness) String() string {
	if s.factor == 0 {
		return ""
	}
	return fmt.Sprintf("%v:%v", s.fraction, s.factor)
}

// Type implements pflag.Value.
func (s *slowness) Type() string { return "FRACTION:FACTOR" }

// Set implements pflag.Value.
func (s *slowness) Set(text string) error {
	fraction, factor, _ := strings.Cut(text, ":")
	var errs [2]error
	s.fraction, errs[0] = strconv.ParseFloat(fraction, 64)
	s.factor, errs[1] = strconv.ParseFloat(factor, 64)
	if errors.Join(errs[:]...) != nil || !(s.fraction >= 0 && s.fraction <= 1 && s.factor >= 1 && s.factor <= 1e6) {
		return errors.New("want FRACTION:FACTOR, such as 0.3:10 for three of ten agents that are ten times as slow")
	}
	return nil
}

// draw returns a source of chance of its own for each purpose.
func (f *fleet) draw(what string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

// mischief makes an agent vanish for a round, or send its update after the deadline. It hears of rounds as the agent's
// observer, and stands between the agent and its brokers.
type mischief struct {
	topics     mqtt.Topics
	drop, late float64

	mu       sync.Mutex
	rng      *rand.Rand
	deadline time.Time // of the round under way
	owes     bool      // its update is yet to be sent
	gone     time.Time // until then nothing is heard of the agent
	held     time.Time // until then its update is held back
}

// overdue is how long after the deadline an agent is back, or its update comes.
const overdue = time.Second

func (f *fleet) mischief(i int, topics mqtt.Topics) *mischief {
	return &mischief{topics: topics, drop: f.drop, late: f.late, rng: f.draw(fmt.Sprintf("mischief of %d", i))}
}

// Observe implements agent.Observer.
func (m *mischief) Observe(agent.Fact) {}

// ObserveRound implements agent.Observer: an agent that vanishes does so when it has joined a round.
func (m *mischief) ObserveRound(fact round.AgentFact) {
	w, ok := fact.(round.WorkStarted)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deadline, m.owes = time.Now().Add(w.Left), true
	if m.rng.Float64() < m.drop {
		m.gone = m.deadline.Add(overdue)
	}
}

// wrap stands in front of a connection to a broker.
func (m *mischief) wrap(conn mqtt.Conn) mqtt.Conn { return &mischiefConn{conn, m} }

// hold tells what happens to a message: it passes now, or after a time, or is lost.
func (m *mischief) hold(kind mqtt.Kind) (after time.Duration, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case kind != mqtt.KindUpdate && kind != mqtt.KindStatus && kind != mqtt.KindPeer:
		return 0, false // such as presence, by which the coordinator would hear of its end
	case now.Before(m.gone):
		return 0, true
	case kind != mqtt.KindUpdate:
		return 0, false
	case m.owes:
		m.owes = false
		if m.rng.Float64() < m.late {
			m.held = m.deadline.Add(overdue)
			return m.held.Sub(now), false
		}
	}
	return 0, now.Before(m.held)
}

// mischiefConn is an agent's connection.
type mischiefConn struct {
	mqtt.Conn
	mischief *mischief
}

// Publish implements mqtt.Conn.
func (c *mischiefConn) Publish(msg mqtt.Message) error {
	kind, _, _, _, _ := c.mischief.topics.Parse(msg.Topic) // a foreign topic has KindUnknown
	after, lost := c.mischief.hold(kind)
	switch {
	case lost:
		return nil
	case after > 0:
		time.AfterFunc(after, func() { _ = c.Conn.Publish(msg) }) // an error would be the agent's, which has gone on
		return nil
	}
	return c.Conn.Publish(msg)
}
