package agentd

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/internal/agentd/announce"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/internal/testkit/mqtttest"
	"github.com/fedmesh/fedmesh/mqtt"
)

// TestAnnouncedHealth checks with Mosquitto that the announcements show the conditions of the agent. The announcements
// must remain after a normal end, and must be deleted after the device was revoked.
func TestAnnouncedHealth(t *testing.T) {
	s := settings.DefaultAgent()
	s.ID, s.Predict.ForecastTopic, s.Predict.AnnouncedSystem = "one", "site/forecast", settings.AnnounceHomeAssistant
	s.Predict.ForecastBroker.URLs = config.OneOrMore{brokers.OpenMosquitto(t)}
	topics, err := mqtt.NewTopics("", "air")
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{Federation: "air", ID: "one", Topics: topics, StateDir: t.TempDir(), Now: time.Now,
		Logger: slog.New(slog.DiscardHandler), Predict: &predict.Config{}}
	cfg.Identity.Clock = identity.NewCertificateClock(time.Time{}, time.Now)
	display := mqtttest.Dial(t, mqtt.Options{URL: s.Predict.ForecastBroker.URLs[0], ClientID: "display"})
	display.Subscribe(mqtt.AtLeastOnce, "homeassistant/#", "site/#")
	await := func(topic, payload string) {
		t.Helper()
		for m := mqtttest.Received(t, display); m.Topic != topic || string(m.Payload) != payload; {
			m = mqtttest.Received(t, display)
		}
	}

	for _, cause := range []error{nil, fmt.Errorf("agent: %w", &identity.RevokedError{Version: 3})} {
		board := status.NewBoard(time.Now, nil)
		health, end, err := startPublishingForecasts(t.Context(), &cfg, &s, board)
		if err != nil {
			t.Fatal(err)
		}
		await("site/forecast/one/availability", "online")
		board.RaiseCondition(status.Condition{Name: "disk", Problem: "the disk is full", Remedy: "delete files"})
		health.Observe(nil)
		await("site/forecast/one/health", `{"problem":"ON","problems":["the disk is full"]}`)
		if err := end(cause); err != nil {
			t.Error(err)
		}
		await("site/forecast/one/availability", "offline")
		if cause != nil {
			await("site/forecast/one/availability", "")
		}
		if remains := len(announce.RemainingTopics(cfg.StateDir)) > 0; remains != (cause == nil) {
			t.Errorf("after %v, announcements remain: %v", cause, remains)
		}
	}
}
