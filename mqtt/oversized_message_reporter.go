package mqtt

import (
	"log/slog"
	"strings"
	"sync"
)

// oversizedMessageReporter reports the messages that exceed Options.MaxPacket. It logs the first message of each topic.
type oversizedMessageReporter struct {
	observeMessage func(ObservedMessage)
	logger         *slog.Logger

	mu              sync.Mutex
	isLoggedByTopic map[string]bool // topics that were already logged
}

const (
	// maxLoggedTopics is the maximum number of topics remembered and logged. Without this limit, a publisher of many
	// topics could fill memory and logs.
	maxLoggedTopics = 64
	// maxLoggedTopicBytes is the maximum length of a topic in the log; longer topics are cut.
	maxLoggedTopicBytes = 128
)

func newOversizedMessageReporter(o *Options) *oversizedMessageReporter {
	return &oversizedMessageReporter{observeMessage: o.ObserveMessage, logger: o.Logger,
		isLoggedByTopic: map[string]bool{}}
}

// report reports an oversized message to ObserveMessage, and logs the first oversized message of each topic.
func (v *oversizedMessageReporter) report(t ObservedMessage) {
	v.observeMessage(t)
	topic := strings.ToValidUTF8(t.Topic[:min(len(t.Topic), maxLoggedTopicBytes)], "�")
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isLoggedByTopic[topic] || len(v.isLoggedByTopic) == maxLoggedTopics {
		return
	}
	v.isLoggedByTopic[topic] = true
	v.logger.Warn("oversized message dropped", "topic", topic, "bytes", t.OversizedPacketSize, "limit",
		t.ExceededSizeLimit)
}
