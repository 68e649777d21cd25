package mqtt_test

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/mqtt"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		filter, topic string
		want          bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a/b", false},
		{"a/b", "a", false},
		{"a/b", "a/b", true},
		{"+", "a", true},
		{"+", "a/b", false},
		{"+/+", "/a", true},
		{"/+", "/a", true},
		{"+", "/a", false},
		{"a/+", "a/", true},
		{"a/+", "a", false},
		{"a/+/c", "a/b/c", true},
		{"a/+/c", "a/b/b/c", false},
		{"#", "a/b/c", true},
		{"#", "/", true},
		{"a/#", "a", true},
		{"a/#", "a/b/c", true},
		{"a/#", "ab", false},
		{"a/+/#", "a", false},
		{"a/+/#", "a/b", true},
		{"#", "$SYS/x", false},
		{"+/x", "$SYS/x", false},
		{"$SYS/#", "$SYS/x", true},
		{"a/#", "a/$SYS", true},
	} {
		if got := mqtt.FilterMatchesTopic(c.filter, c.topic); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.filter, c.topic, got)
		}
	}
}

func TestCheckSubscription(t *testing.T) {
	for _, filter := range []string{"a", "/", "+", "#", "a/+/b/#", "+/+", "$SYS/#", "a b/ü"} {
		if err := mqtt.CheckSubscriptionFilter(mqtt.AtLeastOnce, filter); err != nil {
			t.Errorf("%q: %v", filter, err)
		}
	}
	for _, filter := range []string{"", "#/a", "a#", "a/b+", "++", "a\x00", "\xff", strings.Repeat("a", 65536)} {
		if mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, filter) == nil {
			t.Errorf("%.20q is accepted", filter)
		}
	}
	if mqtt.CheckSubscriptionFilter(2, "a") == nil {
		t.Error("QoS 2 is accepted")
	}
}
