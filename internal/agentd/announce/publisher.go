package announce

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// minRequestInterval is the minimum time between two announcements that other clients of the broker request.
const minRequestInterval = 10 * time.Second

// Connection is the part of mqtt.Conn that a Publisher uses.
type Connection interface {
	Publish(m mqtt.Message) error
	Subscribe(qos mqtt.QoS, filters ...string)
}

// Publisher publishes forecasts and announcements on the site's broker. It deletes the announcements of a previous
// target or of previous settings. Publisher is safe for concurrent use.
type Publisher struct {
	announcer Announcer
	now       func() time.Time
	log       *slog.Logger

	mu            sync.Mutex
	conn          Connection
	will          mqtt.Message // will message of the current connection
	topics        topicRecord
	health        Health
	target        *modelfile.PredictionTarget // target of the last forecast; nil before the first forecast
	isBirthDue    bool                        // true if announcements could not be queued
	nextRequestAt time.Time                   // time from which a request is accepted

	deletedMu sync.Mutex
	deleted   []string // topics of messages that the broker has received since the last cleanup
}

// NewPublisher returns a publisher that stores the topics of announcements in the state folder dir. Start must be
// called before any other method except Will and ObserveTraffic.
func NewPublisher(a Announcer, dir string, now func() time.Time, log *slog.Logger) *Publisher {
	p := &Publisher{announcer: a, now: now, log: log}
	p.topics.dir = dir
	if err := p.topics.load(); err != nil {
		log.Warn("cannot read the topics of announcements", "err", err)
	}
	device, _ := a.Birth(Health{}, nil)
	p.saveTopics(p.topics.setDevice(retainedTopics(device)))
	return p
}

// Will returns the will for the next connection (mqtt.Options.Will).
func (p *Publisher) Will() mqtt.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.will = p.announcer.Will()
	return p.will
}

// Start sets the connection and subscribes to requests.
func (p *Publisher) Start(c Connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = c
	if filters := p.announcer.RequestFilters(); len(filters) > 0 {
		c.Subscribe(mqtt.AtLeastOnce, filters...)
	}
}

// HandleEvent announces the device after each connect, and on request. Any client of the site's broker can send a
// request.
func (p *Publisher) HandleEvent(e mqtt.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case mqtt.LinkUp:
		p.publishBirth()
	case mqtt.MessageReceived:
		// Every connect is followed by an announcement, so retained requests are ignored.
		if e.Retained || !p.announcer.IsRequest(e.Message) || p.now().Before(p.nextRequestAt) {
			return
		}
		p.nextRequestAt = p.now().Add(minRequestInterval)
		p.publishBirth()
	}
}

// SetHealth publishes the health of the agent if it has changed.
func (p *Publisher) SetHealth(h Health) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(h.Problems, p.health.Problems) {
		p.health = h
		p.publishBirth()
	}
}

// PublishForecast publishes a forecast, and announces its target if the target has changed
// (predict.Config.PublishForecast).
func (p *Publisher) PublishForecast(f predict.Forecast) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	messages, err := p.announcer.Forecast(f)
	if err != nil {
		return err
	}
	// If the first message does not fit in the outbox, the caller retries with the same forecast.
	if err := p.conn.Publish(messages[0]); err != nil {
		p.isBirthDue = true // the other messages, which may be numbered, are missing
		return err
	}
	if p.target == nil || *p.target != f.Target {
		p.target = &f.Target
		p.isBirthDue = true
	}
	if p.isBirthDue {
		p.publishBirth()
		messages, _ = p.announcer.Forecast(f) // encode the forecast again, because the birth restarts sequence numbers
	}
	for _, m := range messages[1:] {
		if err := p.conn.Publish(m); errors.Is(err, mqtt.ErrOutboxFull) {
			p.isBirthDue = true
			return errors.New("part of a forecast is lost: " + err.Error())
		} else if err != nil {
			return err
		}
	}
	return nil
}

// ObserveTraffic records which deletions the broker has received (mqtt.Options.ObserveMessage).
func (p *Publisher) ObserveTraffic(x mqtt.ObservedMessage) {
	if x.IsIncoming || x.IsDropped || x.PayloadBytes > 0 {
		return
	}
	p.deletedMu.Lock()
	defer p.deletedMu.Unlock()
	p.deleted = append(p.deleted, x.Topic)
}

// Stop reports the device as offline. If the device has left the federation, Stop deletes its announcements.
func (p *Publisher) Stop(hasLeft bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.will.Topic != "" {
		p.publish(p.will)
	}
	if hasLeft {
		p.saveTopics(p.topics.setDevice(nil))
		p.publishDeletions()
	}
}

// Close saves which deletions the broker has received. Close must be called after the connection is closed.
func (p *Publisher) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetDeleted()
}

// publishBirth publishes the announcements, the last forecast, and the deletions of obsolete announcements. The caller
// must hold p.mu.
func (p *Publisher) publishBirth() {
	p.isBirthDue = false
	p.forgetDeleted()
	device, forecasts := p.announcer.Birth(p.health, p.target)
	changed := p.topics.setDevice(retainedTopics(device))
	if p.target != nil {
		changed = p.topics.setForecasts(retainedTopics(forecasts)) || changed
	}
	p.saveTopics(changed)
	p.publishDeletions()
	for _, m := range append(device, forecasts...) {
		p.publish(m)
	}
}

func (p *Publisher) publishDeletions() {
	for _, topic := range p.topics.Obsolete {
		p.publish(mqtt.Message{Topic: topic, QoS: mqtt.AtLeastOnce, Retained: true})
	}
}

// publish publishes an announcement. After an error, it marks the announcements as due again. If the connection was
// lost, they are published after the next connect.
func (p *Publisher) publish(m mqtt.Message) {
	switch err := p.conn.Publish(m); {
	case errors.Is(err, mqtt.ErrOutboxFull):
		p.isBirthDue = true
	case err != nil && !errors.Is(err, mqtt.ErrDown):
		p.log.Error("cannot announce the forecasts", "topic", m.Topic, "err", err)
	}
}

// forgetDeleted removes topics from the record whose messages the broker has deleted.
func (p *Publisher) forgetDeleted() {
	p.deletedMu.Lock()
	deleted := p.deleted
	p.deleted = nil
	p.deletedMu.Unlock()
	p.saveTopics(p.topics.removeObsolete(deleted))
}

// RemainingTopics returns the topics of announcements on the site's broker that the agent has not deleted. dir is the
// state folder of an agent without a publisher.
func RemainingTopics(dir string) []string {
	r := topicRecord{dir: dir}
	if r.load() != nil {
		return nil
	}
	r.setDevice(nil)
	return r.Obsolete
}

func (p *Publisher) saveTopics(changed bool) {
	if !changed {
		return
	}
	if err := p.topics.save(); err != nil {
		p.log.Error("cannot save the topics of announcements", "err", err)
	}
}

// retainedTopics returns the topics of the retained messages, sorted and without duplicates.
func retainedTopics(messages []mqtt.Message) (topics []string) {
	for _, m := range messages {
		if m.Retained {
			topics = append(topics, m.Topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}
