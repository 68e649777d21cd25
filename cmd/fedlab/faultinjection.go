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

// slowAgentsFlag is the value of the flag --slow, which makes a fraction of the agents slower by a factor.
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
		return errors.New("specify FRACTION:FACTOR with FRACTION from 0 to 1 and FACTOR from 1 to 1e6; for example, " +
			"0.3:10 makes three of ten agents ten times slower")
	}
	return nil
}

// lyingAgentsFlag is the value of the flag --lie, which makes a fraction of the agents send false updates.
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
		return errors.New("specify FRACTION:LIE with FRACTION from 0 to 1; for example, with 0.1:nan one of ten " +
			"agents sends updates of NaN")
	}
	l.name = name
	l.Lie, err = liar.Parse(name)
	return err
}

// randFor returns an independent source of random numbers for the purpose what.
func (f *fleet) randFor(what string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(what))
	return rand.New(rand.NewPCG(f.seed, h.Sum64()))
}

// faultInjector makes an agent disappear during a round, or sends the agent's update after the deadline. It detects
// rounds as an observer of the agent, and delays or drops messages as a decorator of the agent's connections.
type faultInjector struct {
	topics                           mqtt.Topics
	dropProbability, lateProbability float64

	mu              sync.Mutex
	rng             *rand.Rand
	deadline        time.Time // deadline of the current round
	updatePending   bool      // the update has not been sent yet
	vanishedUntil   time.Time // time until which all messages of the agent are dropped
	updateHeldUntil time.Time // time until which the agent's update is delayed
}

// faultEndDelay is the time after the round's deadline at which a simulated fault ends.
const faultEndDelay = time.Second

func (f *fleet) newFaultInjector(i int, topics mqtt.Topics) *faultInjector {
	return &faultInjector{topics: topics, dropProbability: f.dropProbability, lateProbability: f.lateProbability,
		rng: f.randFor(fmt.Sprintf("mischief of %d", i))}
}

// Observe implements observe.Observer. It starts a simulated fault after the agent has joined a round.
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

// wrap returns a connection that delays or drops messages sent through conn.
func (m *faultInjector) wrap(conn mqtt.Conn) mqtt.Conn { return &faultyConn{conn, m} }

// delayOrDrop returns the delay for a message of the given kind. lost is true if the message must be dropped.
func (m *faultInjector) delayOrDrop(kind mqtt.TopicKind) (after time.Duration, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	switch {
	case kind != mqtt.KindUpdate && kind != mqtt.KindAgentToCoordinator && kind != mqtt.KindPeer:
		return 0, false // for example a presence message, which would otherwise report that the agent has left
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
	// The error does not matter, because any other topic yields KindUnknown.
	kind, _, _, _, _ := c.faults.topics.ParseTopic(msg.Topic)
	after, lost := c.faults.delayOrDrop(kind)
	switch {
	case lost:
		return nil
	case after > 0:
		// Ignore the error, because Publish has already returned.
		time.AfterFunc(after, func() { _ = c.Conn.Publish(msg) })
		return nil
	}
	return c.Conn.Publish(msg)
}
