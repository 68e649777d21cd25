package mqtt

import (
	"slices"
	"time"
)

// maxFiltersPerSubscribe is how many filters one SUBSCRIBE asks for: more are refused by
// AWS IoT Core.
const maxFiltersPerSubscribe = 8

type subscription struct {
	filter string
	qos    QoS
}

// subscriptionState is a subscription with what brokers said to it.
type subscriptionState struct {
	subscription
	consecutiveRefusals      int         // in a row, by the present link
	consecutiveRefusingLinks int         // links in a row that were given up because they refused it
	retryTimer               *time.Timer // asks for it again; nil unless it is refused
}

// clearRefusals forgets the refusals of a link that granted the filter, or is gone.
func (e *subscriptionState) clearRefusals() {
	if e.retryTimer != nil {
		e.retryTimer.Stop()
	}
	e.consecutiveRefusals, e.retryTimer = 0, nil
}

// subscriptionTable is what a session is subscribed to, oldest first. Each new link asks
// for all of it, since with clean sessions the broker has forgotten.
type subscriptionTable struct{ entries []*subscriptionState }

// find returns nil for a filter that is not in the table.
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

// remove reports whether the filter was refused.
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

// clearRefusals forgets the refusals of the link that is gone.
func (t *subscriptionTable) clearRefusals() {
	for _, e := range t.entries {
		e.clearRefusals()
	}
}

// all returns the subscriptions.
func (t *subscriptionTable) all() []subscription {
	list := make([]subscription, len(t.entries))
	for i, e := range t.entries {
		list[i] = e.subscription
	}
	return list
}
