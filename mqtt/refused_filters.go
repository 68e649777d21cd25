package mqtt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// firstRefusalRetryDelay is the longest wait before a filter is asked for again that
	// the broker refused for the first time; it doubles up to maxRefusalRetryDelay.
	firstRefusalRetryDelay = time.Second
	maxRefusalRetryDelay   = time.Minute
	// refusalsPerLinkMove is how many refusals in a row make a session with several URLs
	// go to the next one. It doubles, up to maxLinkMoveDoublings times, each time that all
	// of them have refused: then the access rules are the likelier cause.
	refusalsPerLinkMove  = 3
	maxLinkMoveDoublings = 4
)

// RefusedFilterRetryDelay returns the wait before a filter is asked for again that was
// refused n times in a row: uniform in the upper half of 1 s, doubled with each
// refusal up to 60 s.
func RefusedFilterRetryDelay(n int, r *rand.Rand) time.Duration {
	longest := min(firstRefusalRetryDelay<<min(max(n, 1)-1, 10), maxRefusalRetryDelay)
	return longest/2 + time.Duration(r.Int64N(int64(longest/2)+1))
}

// maxRefusalsPerLink is how many refusals in a row end a link, after moves links
// that ended for the same filter, one of urls each.
func maxRefusalsPerLink(moves, urls int) int {
	return refusalsPerLinkMove << min(moves/urls, maxLinkMoveDoublings)
}

// handleSuback takes the broker's answer to a SUBSCRIBE. paho's token calls a
// failure code a success.
func (s *Session) handleSuback(l *brokerLink, asked []subscription, codes map[string]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l { // lost meanwhile
		return
	}
	for _, a := range asked {
		e := s.subscriptions.find(a.filter)
		switch code := codes[a.filter]; {
		case e == nil: // given up meanwhile
		case code > 2:
			s.handleFilterRefusal(l, e, code)
		default:
			if e.consecutiveRefusals > 0 {
				s.mailbox.Put(SubscriptionRefusalEnded{Filter: e.filter})
			}
			e.clearRefusals()
			e.consecutiveRefusingLinks = 0
		}
	}
}

// handleFilterRefusal has a filter asked for again, or ends the link when another node of
// the cluster may grant it.
func (s *Session) handleFilterRefusal(l *brokerLink, e *subscriptionState, code byte) {
	e.consecutiveRefusals++
	s.mailbox.Put(SubscriptionRefused{Filter: e.filter, SubackCode: code})
	if len(s.brokerURLs) > 1 && e.consecutiveRefusals >= maxRefusalsPerLink(e.consecutiveRefusingLinks,
		len(s.brokerURLs)) {
		e.consecutiveRefusingLinks++
		l.abort(fmt.Errorf("it refused %s %d times in a row: %s", e.filter, e.consecutiveRefusals, RefusalRemedy))
		return
	}
	if e.retryTimer != nil { // its owner has asked for it meanwhile
		e.retryTimer.Stop()
	}
	e.retryTimer = time.AfterFunc(RefusedFilterRetryDelay(e.consecutiveRefusals, s.options.Rand),
		func() { s.retrySubscription(l, e) })
}

func (s *Session) retrySubscription(l *brokerLink, e *subscriptionState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l && e.consecutiveRefusals > 0 && slices.Contains(s.subscriptions.entries, e) {
		l.subscribe([]subscription{e.subscription})
	}
}

// RefusalRemedy says what to do when a broker refuses a subscription.
const RefusalRemedy = "let its access rules permit the topic (`coordinator acl` writes the rules for Mosquitto); if " +
	"the broker is a node of a cluster that has lost its peers, list all nodes in broker.url"

// RefusedFilters are the filters that the broker refuses now, as the events of
// a connection tell.
type RefusedFilters struct{ filters []string } // sorted

// Step takes in an event, and reports whether it changed the list.
func (r *RefusedFilters) Step(e Event) (changed bool) {
	before := len(r.filters)
	switch e := e.(type) {
	case SubscriptionRefused:
		if i, known := slices.BinarySearch(r.filters, e.Filter); !known {
			r.filters = slices.Insert(r.filters, i, e.Filter)
		}
	case SubscriptionRefusalEnded:
		if i, known := slices.BinarySearch(r.filters, e.Filter); known {
			r.filters = slices.Delete(r.filters, i, i+1)
		}
	case LinkDown:
		r.filters = nil
	}
	return len(r.filters) != before
}

// List returns the filters in order.
func (r *RefusedFilters) List() []string { return slices.Clone(r.filters) }
