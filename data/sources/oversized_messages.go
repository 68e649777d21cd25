package sources

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data"
)

// maxOversizedTopics is the maximum number of topics whose oversized messages are reported. The limit is needed because
// publishers may use any number of topics.
const maxOversizedTopics = 16

// oversizedText is the trouble text for a topic. Its arguments are the topic, the size of a message and the limit.
const oversizedText = "topic %.128q: dropped a message of %d bytes, which exceeds the limit of %d; " +
	"use narrower topics in data.columns, or send smaller messages"

// oversizedTopic describes the messages of one topic that were dropped because of their size.
type oversizedTopic struct {
	largestMessageSize int // size of the largest message in bytes
	sizeLimit          int
	lastDropAt         time.Time
}

// recordOversizedMessage records a message that was dropped because of its size. The MQTT session logs the message.
func (l *sourceStats) recordOversizedMessage(topic string, size, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.oversizedByTopic, func(_ string, o oversizedTopic) bool { return o.isOutdated(l.now()) })
	before, known := l.oversizedByTopic[topic]
	if !known && len(l.oversizedByTopic) == maxOversizedTopics {
		return
	}
	l.oversizedByTopic[topic] = oversizedTopic{max(size, before.largestMessageSize), limit, l.now()}
}

// oversizedTroubles returns a trouble for each topic with a recent oversized message. The caller must hold l.mu.
func (l *sourceStats) oversizedTroubles(now time.Time) (all []data.SourceTrouble) {
	for _, topic := range slices.Sorted(maps.Keys(l.oversizedByTopic)) {
		if o := l.oversizedByTopic[topic]; !o.isOutdated(now) {
			all = append(all, data.SourceTrouble{Kind: data.TroubleOversized, Text: fmt.Sprintf(oversizedText, topic,
				o.largestMessageSize, o.sizeLimit)})
		}
	}
	return all
}

func (o oversizedTopic) isOutdated(now time.Time) bool {
	return now.Sub(o.lastDropAt) >= damageReportDuration
}
