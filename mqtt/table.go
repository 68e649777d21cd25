package mqtt

import "slices"

// maxFilters is how many filters one SUBSCRIBE asks for: more are refused by
// AWS IoT Core.
const maxFilters = 8

type subscription struct {
	filter string
	qos    QoS
}

// table is what a session is subscribed to, oldest first. Each new link asks
// for all of it, since with clean sessions the broker has forgotten.
type table struct{ entries []subscription }

func (t *table) find(filter string) int {
	return slices.IndexFunc(t.entries, func(s subscription) bool { return s.filter == filter })
}

func (t *table) set(s subscription) {
	if i := t.find(s.filter); i >= 0 {
		t.entries[i] = s
		return
	}
	t.entries = append(t.entries, s)
}

func (t *table) remove(filter string) {
	if i := t.find(filter); i >= 0 {
		t.entries = slices.Delete(t.entries, i, i+1)
	}
}
