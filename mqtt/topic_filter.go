package mqtt

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxMQTTStringBytes is the maximum length in bytes of a string in MQTT.
const maxMQTTStringBytes = 65535

// Validate returns an error if m can never be published.
func (m Message) Validate() error {
	if err := checkMQTTString(m.Topic); err != nil {
		return fmt.Errorf("mqtt: topic %.64q: %w", m.Topic, err)
	}
	if strings.ContainsAny(m.Topic, "+#") {
		return fmt.Errorf("mqtt: topic %.64q: wildcards '+' and '#' are only allowed in filters", m.Topic)
	}
	if m.QoS > AtLeastOnce {
		return fmt.Errorf("mqtt: topic %.64q: unsupported QoS %d: use 0 or 1", m.Topic, m.QoS)
	}
	return nil
}

// CheckSubscriptionFilter returns an error if filter or qos is not valid for a subscription (MQTT 3.1.1, 4.7.1).
func CheckSubscriptionFilter(qos QoS, filter string) error {
	if err := checkMQTTString(filter); err != nil {
		return fmt.Errorf("mqtt: filter %.64q: %w", filter, err)
	}
	if qos > AtLeastOnce {
		return fmt.Errorf("mqtt: filter %.64q: unsupported QoS %d: use 0 or 1", filter, qos)
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		switch {
		case level == "#" && i < len(levels)-1:
			return fmt.Errorf("mqtt: filter %.64q: '#' must be the last level", filter)
		case len(level) > 1 && strings.ContainsAny(level, "+#"):
			return fmt.Errorf("mqtt: filter %.64q: '+' and '#' must be whole levels", filter)
		}
	}
	return nil
}

// FilterMatchesTopic reports whether a valid filter matches a topic. A wildcard at the first level does not match
// topics that begin with '$' (MQTT 3.1.1, 4.7.2).
func FilterMatchesTopic(filter, topic string) bool {
	if strings.HasPrefix(topic, "$") && (strings.HasPrefix(filter, "+") || strings.HasPrefix(filter, "#")) {
		return false
	}
	for {
		want, filterRest, filterMore := strings.Cut(filter, "/")
		have, topicRest, topicMore := strings.Cut(topic, "/")
		switch {
		case want == "#":
			return true
		case want != "+" && want != have:
			return false
		case !topicMore:
			return !filterMore || filterRest == "#"
		case !filterMore:
			return false
		}
		filter, topic = filterRest, topicRest
	}
}

func checkMQTTString(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > maxMQTTStringBytes:
		return fmt.Errorf("the text has %d bytes, which exceeds the limit of %d", len(s), maxMQTTStringBytes)
	case !utf8.ValidString(s):
		return errors.New("the text is not valid UTF-8")
	case strings.ContainsRune(s, 0):
		return errors.New("the text contains a NUL character")
	}
	return nil
}
