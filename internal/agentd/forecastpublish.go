package agentd

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/internal/agentd/announce"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
)

// startPublishingForecasts makes the agent publish and announce its forecasts over a separate connection, if the
// settings configure this. health passes the agent's problems to the publisher and may be nil. The returned function
// end closes the connection; its parameter cause is the error with which the agent ended.
func startPublishingForecasts(ctx context.Context, cfg *agent.Config, s *settings.Agent,
	board *status.ConditionBoard) (health observe.Observer, end func(cause error) error, err error) {
	if cfg.Predict == nil || s.Predict.ForecastTopic == "" {
		if topics := announce.RemainingTopics(cfg.StateDir); len(topics) > 0 {
			cfg.Logger.Warn("announcements remain on the site's broker", "topics", topics, "remedy",
				"publish forecasts once with predict.announce: json, then remove predict.publish again")
		}
		return nil, func(error) error { return nil }, nil
	}
	log := cfg.Logger.With("connection", "forecasts")
	p := announce.NewPublisher(announce.New(s.Predict.AnnouncedSystem, announce.Device{
		Federation: string(cfg.Federation), ID: s.ID, Version: daemon.Version(), PID: os.Getpid(),
		Topic: s.Predict.ForecastTopic, Prefix: s.Predict.AnnouncePrefix,
		Now: cfg.Now,
	}), cfg.StateDir, time.Now, log)
	site := s.Predict.SiteBroker()
	conn, err := daemon.DialBroker(ctx, &site, cfg.Topics, cfg.Topics.ClientID(cfg.ID)+"-predict", log,
		func(x mqtt.ObservedMessage, _ mqtt.TopicKind) { p.ObserveTraffic(x) },
		func(m *mqtt.Options) { m.CertificateCheckTime, m.Will = cfg.Identity.Clock.Now, p.Will })
	if err != nil {
		return nil, nil, err
	}
	p.Start(conn)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range conn.Events() {
			p.HandleEvent(e)
		}
	}()
	cfg.Predict.PublishForecast = p.PublishForecast
	if s.Predict.AnnouncedSystem != settings.AnnounceJSON {
		health = healthObserver{p, board}
	}
	return health, func(cause error) error {
		p.Stop(errors.As(cause, new(*identity.RevokedError)))
		err := conn.Close()
		<-done
		p.Close()
		return err
	}, nil
}

// healthObserver passes the agent's problems to a publisher of announcements.
type healthObserver struct {
	publisher *announce.Publisher
	board     *status.ConditionBoard
}

// Observe implements observe.Observer. It must be called after the board has received the event.
func (h healthObserver) Observe(observe.Event) {
	var health announce.Health
	for _, c := range h.board.Conditions() {
		health.Problems = append(health.Problems, c.Problem)
	}
	h.publisher.SetHealth(health)
}
