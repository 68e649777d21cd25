package announce

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/mqtt"
)

// An Announcer returns the messages by which a system detects a device and shows its forecasts. The topics of
// retained messages must depend only on the Device and the target, because a later start compares them to find obsolete
// messages. The methods are not called concurrently.
type Announcer interface {
	// Will returns the message that reports the device as offline. The broker publishes it if the next connection is
	// lost, and the agent publishes it before it disconnects. An empty topic means no will.
	Will() mqtt.Message
	// Birth returns the messages that announce the device, and the messages that announce its forecasts, including
	// retained messages with the last forecast. target is nil before the first forecast.
	Birth(health Health, target *modelfile.PredictionTarget) (device, forecasts []mqtt.Message)
	// Forecast returns the messages that show a forecast. The first message is the forecast as plain JSON.
	Forecast(f predict.Forecast) ([]mqtt.Message, error)
	// RequestFilters returns the topics of requests to announce the device again.
	RequestFilters() []string
	// IsRequest reports whether a message on these topics is a request. The message may have any content.
	IsRequest(m mqtt.Message) bool
}

// announcers contains the constructor of each system's announcer, and the default of Device.Prefix.
var announcers = map[string]struct {
	construct     func(d *Device) Announcer
	defaultPrefix string
}{
	settings.AnnounceJSON:          {newPlainJSON, ""},
	settings.AnnounceHomeAssistant: {newHomeAssistant, "homeassistant"},
	settings.AnnounceThinEdge:      {newThinEdge, "te"},
	settings.AnnounceSparkplug:     {newSparkplug, ""},
}

// New returns the announcer of a system for a device. system is one of settings.AnnounceSystems.
func New(system string, d Device) Announcer {
	entry := announcers[system]
	d.Prefix = cmp.Or(d.Prefix, entry.defaultPrefix)
	return entry.construct(&d)
}

// Device describes the device that is announced.
type Device struct {
	Federation, ID string
	Version        string // version of agentd
	PID            int    // process id of agentd
	Topic          string // topic of the forecasts as plain JSON (predict.publish)
	Prefix         string // first levels of the system's topics (predict.announce_prefix); empty for the default
	Now            func() time.Time
}

// uniqueID returns an identifier of the device that stays the same across restarts and model changes. It is
// unambiguous, because the name of a federation contains no hyphen.
func (d *Device) uniqueID() string { return "fedmesh_" + d.Federation + "-" + topicID(d.ID) }

// Health describes the health of the agent.
type Health struct {
	Problems []string // descriptions of problems that require attention
}

// topicID replaces all characters of text except a-z, A-Z, 0-9, _ and - by underscores. If it replaced any, it appends
// a hash of text, so that different texts have different results.
func topicID(text string) string {
	id := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, text)
	if id == text {
		return id
	}
	sum := sha256.Sum256([]byte(text))
	return id + "_" + hex.EncodeToString(sum[:4])
}

// retainedJSON returns a retained message whose payload is value as JSON. The value must be encodable as JSON.
func retainedJSON(topic string, value any) mqtt.Message {
	payload, _ := json.Marshal(value) // ignore the error: all types of this package can be encoded
	return mqtt.Message{Topic: topic, Payload: payload, QoS: mqtt.AtLeastOnce, Retained: true}
}
