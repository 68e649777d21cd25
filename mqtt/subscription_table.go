package mqtt

import (
	"slices"
	"time"
)

// maxFiltersPerSubscribe is the maximum number of filters in one SUBSCRIBE, the limit of AWS IoT Core.
const maxFiltersPerSubscribe = 8

type subscription struct {
	filter string
	qos    QoS
}

// subscriptionState is a subscription with its refusals.
type subscriptionState struct {
	subscription
	consecutiveRefusals      int // consecutive refusals on the current link
	consecutiveRefusingLinks int // consecutive links closed because they refused the filter
	retryTimer               *time.Timer
}

// clearRefusals resets the refusals after the filter was granted or the link was lost.
func (e *subscriptionState) clearRefusals() {
	if e.retryTimer != nil {
		e.retryTimer.Stop()
	}
	e.consecutiveRefusals, e.retryTimer = 0, nil
}

// subscriptionTable holds the subscriptions of a session, oldest first. Each new link requests all of them, because
// with clean sessions the broker has forgotten them.
type subscriptionTable struct{ entries []*subscriptionState }

// find returns the state of a filter, or nil if it is not in the table.
func (t *subscriptionTable) find(filter string) *subscriptionState {
	for _, e := range t.entries {
		if e.filter == filter {
			return e
		}
	}
	return nil
}

func (t *subscriptionTable) set(s subscription) {
	if e := t.find(s.filter); e != nil {
		e.subscription = s
		return
	}
	t.entries = append(t.entries, &subscriptionState{subscription: s})
}

// remove removes a filter and reports whether it was refused.
func (t *subscriptionTable) remove(filter string) (refused bool) {
	e := t.find(filter)
	if e == nil {
		return false
	}
	refused = e.consecutiveRefusals > 0
	e.clearRefusals()
	t.entries = slices.DeleteFunc(t.entries, func(other *subscriptionState) bool { return other == e })
	return refused
}

// clearRefusals resets the refusal counters of all filters after a lost connection.
func (t *subscriptionTable) clearRefusals() {
	for _, e := range t.entries {
		e.clearRefusals()
	}
}

func (t *subscriptionTable) all() []subscription {
	list := make([]subscription, len(t.entries))
	for i, e := range t.entries {
		list[i] = e.subscription
	}
	return list
}
