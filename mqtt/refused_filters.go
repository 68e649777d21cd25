package mqtt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// firstRefusalRetryDelay is the maximum delay before a subscription filter is requested again after its first
	// refusal. The maximum doubles with each refusal, up to maxRefusalRetryDelay.
	firstRefusalRetryDelay = time.Second
	maxRefusalRetryDelay   = time.Minute
	// refusalsPerLinkMove is the number of consecutive refusals after which a session with several URLs tries the next
	// URL. It doubles each time all URLs have refused, up to maxLinkMoveDoublings times, because the access rules are
	// then the more likely cause.
	refusalsPerLinkMove  = 3
	maxLinkMoveDoublings = 4
)

// RefusedFilterRetryDelay returns the delay before a filter is requested again after n consecutive refusals. The delay
// is uniform between half and all of its maximum. The maximum is 1 s after the first refusal and doubles with each
// further refusal up to 60 s.
func RefusedFilterRetryDelay(n int, r *rand.Rand) time.Duration {
	longest := min(firstRefusalRetryDelay<<min(max(n, 1)-1, 10), maxRefusalRetryDelay)
	return longest/2 + time.Duration(r.Int64N(int64(longest/2)+1))
}

// maxRefusalsPerLink returns the number of consecutive refusals after which a link is closed. moves is the number of
// links already closed for the same filter, urls the number of URLs.
func maxRefusalsPerLink(moves, urls int) int {
	return refusalsPerLinkMove << min(moves/urls, maxLinkMoveDoublings)
}

// handleSuback handles the broker's SUBACK. It reads the codes itself, because paho's token treats a failure code as
// success.
func (s *Session) handleSuback(l *brokerLink, asked []subscription, codes map[string]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != l {
		return
	}
	for _, a := range asked {
		e := s.subscriptions.find(a.filter)
		switch code := codes[a.filter]; {
		case e == nil:
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

// handleFilterRefusal schedules another request for a refused filter, or ends the link if another node of the cluster
// may grant it.
func (s *Session) handleFilterRefusal(l *brokerLink, e *subscriptionState, code byte) {
	e.consecutiveRefusals++
	s.mailbox.Put(SubscriptionRefused{Filter: e.filter, SubackCode: code})
	if len(s.brokerURLs) > 1 && e.consecutiveRefusals >= maxRefusalsPerLink(e.consecutiveRefusingLinks,
		len(s.brokerURLs)) {
		e.consecutiveRefusingLinks++
		l.abort(fmt.Errorf("subscription to %s refused %d times in a row: "+
			"%s", e.filter, e.consecutiveRefusals, RefusalRemedy))
		return
	}
	if e.retryTimer != nil {
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

// RefusalRemedy is the advice for an operator whose broker refuses a subscription.
const RefusalRemedy = "permit the topic in the broker's access rules (`coordinator acl` prints the rules for " +
	"Mosquitto); if the broker is a node of a cluster that has lost its peers, list all nodes in broker.url"

// RefusedFilters is the set of filters that the broker currently refuses. It is derived from the events of a
// connection.
type RefusedFilters struct{ filters []string } // the filters are sorted

// Step processes an event and reports whether it changed the set.
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

// List returns the refused filters in sorted order.
func (r *RefusedFilters) List() []string { return slices.Clone(r.filters) }
