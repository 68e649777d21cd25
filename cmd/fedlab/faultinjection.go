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

	"github.com/fedmesh/fedmesh/lab/liar"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round/agentround"
)

// slowAgentsFlag is the value of --slow.
type slowAgentsFlag struct{ fraction, factor float64 }

// String implements pflag.Value.
func (s *slowAgentsFlag) String() string {
	if s.factor == 0 {
		return ""
	}
	return fmt.Sprintf("%v:%v", s.fraction, s.factor)
}

// Type implements pflag.Value.
func (s *slowAgentsFlag) Type() string { return "FRACTION:FACTOR" }

// Set implements pflag.Value.
func (s *slowAgentsFlag) Set(text string) error {
	fraction, factor, _ := strings.Cut(text, ":")
	var errs [2]error
	s.fraction, errs[0] = strconv.ParseFloat(fraction, 64)
	s.factor, errs[1] = strconv.ParseFloat(factor, 64)
	if errors.Join(errs[:]...) != nil || !(s.fraction >= 0 && s.fraction <= 1 && s.factor >= 1 && s.factor <= 1e6) {
		return errors.New("want FRACTION:FACTOR with FRACTION from 0 to 1 and FACTOR from 1 to 1e6, such as 0.3:10 " +
			"for three of ten agents that are ten times slower")
	}
	return nil
}

// lyingAgentsFlag is the value of --lie.
type lyingAgentsFlag struct {
	fraction float64
	name     string
	liar.Lie
}

// String implements pflag.Value.
func (l *lyingAgentsFlag) String() string {
	if l.name == "" {
		return ""
	}
	return fmt.Sprintf("%v:%s", l.fraction, l.name)
}

// Type implements pflag.Value.
func (l *lyingAgentsFlag) Type() string { return "FRACTION:LIE" }

// Set implements pflag.Value.
func (l *lyingAgentsFlag) Set(text string) (err error) {
	fraction, name, _ := strings.Cut(text, ":")
	if l.fraction, err = strconv.ParseFloat(fraction, 64); err != nil || !(l.fraction >= 0 && l.fraction <= 1) {
		return errors.New("want FRACTION:LIE with FRACTION from 0 to 1, such as 0.1:nan for one of ten agents")
	}
	l.name = name
	l.Lie, err = liar.Parse(name)
	return err
}

// randFor returns an independent random source for each purpose.
func (f *fleet) randFor(what string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

// faultInjector makes an agent vanish for a round, or sends its update after the deadline. It detects rounds as an
// observer of the agent. It delays or drops messages as a decorator of the agent's connections.
type faultInjector struct {
	topics                           mqtt.Topics
	dropProbability, lateProbability float64

	mu              sync.Mutex
	rng             *rand.Rand
	deadline        time.Time // deadline of the current round
	updatePending   bool      // the update has not been sent yet
	vanishedUntil   time.Time // end of the period in which the agent's messages are dropped
	updateHeldUntil time.Time // end of the delay of the agent's update
}

// faultEndDelay is the time from the deadline until an agent is back or its late update is sent.
const faultEndDelay = time.Second

func (f *fleet) newFaultInjector(i int, topics mqtt.Topics) *faultInjector {
	return &faultInjector{topics: topics, dropProbability: f.dropProbability, lateProbability: f.lateProbability,
		rng: f.randFor(fmt.Sprintf("mischief of %d", i))}
}

// Observe implements observe.Observer. A device that is to vanish does so after it has joined a round.
func (m *faultInjector) Observe(event observe.Event) {
	w, ok := event.(agentround.WorkStarted)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deadline, m.updatePending = time.Now().Add(w.TimeLeft), true
	if m.rng.Float64() < m.dropProbability {
		m.vanishedUntil = m.deadline.Add(faultEndDelay)
	}
}

// wrap decorates a connection to a broker.
func (m *faultInjector) wrap(conn mqtt.Conn) mqtt.Conn { return &faultyConn{conn, m} }

// delayOrDrop returns whether a message is lost, and otherwise its delay.
func (m *faultInjector) delayOrDrop(kind mqtt.TopicKind) (after time.Duration, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case kind != mqtt.KindUpdate && kind != mqtt.KindAgentToCoordinator && kind != mqtt.KindPeer:
		return 0, false // such as presence, which would report that the agent has left
	case now.Before(m.vanishedUntil):
		return 0, true
	case kind != mqtt.KindUpdate:
		return 0, false
	case m.updatePending:
		m.updatePending = false
		if m.rng.Float64() < m.lateProbability {
			m.updateHeldUntil = m.deadline.Add(faultEndDelay)
			return m.updateHeldUntil.Sub(now), false
		}
	}
	return 0, now.Before(m.updateHeldUntil)
}

type faultyConn struct {
	mqtt.Conn
	faults *faultInjector
}

// Publish implements mqtt.Conn.
func (c *faultyConn) Publish(msg mqtt.Message) error {
	kind, _, _, _, _ := c.faults.topics.ParseTopic(msg.Topic) // a foreign topic has KindUnknown
	after, lost := c.faults.delayOrDrop(kind)
	switch {
	case lost:
		return nil
	case after > 0:
		time.AfterFunc(after, func() { _ = c.Conn.Publish(msg) }) // the agent no longer waits for an error
		return nil
	}
	return c.Conn.Publish(msg)
}
