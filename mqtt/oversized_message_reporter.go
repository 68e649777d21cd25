package mqtt

import (
	"log/slog"
	"strings"
	"sync"
)

// oversizedReporter reports the messages that exceed Options.MaxPacket. It logs the first message of each topic.
type oversizedReporter struct {
	observeTraffic func(ObservedMessage)
	logger         *slog.Logger

	mu     sync.Mutex
	logged map[string]bool // by topic
}

const (
	// mostLoggedTopics is the maximum number of topics with an oversized message that are logged and remembered. A
	// publisher may use any number of topics.
	mostLoggedTopics = 64
	// mostLoggedBytes bounds a topic in the log.
	mostLoggedBytes = 128
)

func newOversized(o *Options) *oversizedReporter {
	return &oversizedReporter{observeTraffic: o.ObserveMessage, logger: o.Logger, logged: map[string]bool{}}
}

// observe reports an oversized message.
func (v *oversizedReporter) observe(t ObservedMessage) {
	v.observeTraffic(t)
	topic := strings.ToValidUTF8(t.Topic[:min(len(t.Topic), mostLoggedBytes)], "�")
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.logged[topic] || len(v.logged) == mostLoggedTopics {
		return
	}
	v.logged[topic] = true
	v.logger.Warn("oversized message dropped", "topic", topic, "bytes", t.PacketSize, "limit", t.SizeLimit)
}
