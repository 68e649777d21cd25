package daemon

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Status is a line about the state of a daemon, made of its facts; `systemctl status` shows it.
type Status struct {
	changed chan struct{} // holds an element after a change

	mu           sync.Mutex
	link, course string
	refused      int // subscriptions
	names        []string
	parts        []*Status // of the federations with these names, if there are several
}

// NewStatus returns the line of a daemon that is connecting to the broker.
func NewStatus() *Status {
	return &Status{changed: make(chan struct{}, 1), link: "connecting to the broker"}
}

// Of returns the line about one of several federations, a part of this one; this one itself for an empty name.
func (s *Status) Of(name string) *Status {
	if name == "" {
		return s
	}
	part := NewStatus()
	part.changed = s.changed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.parts = append(s.names, name), append(s.parts, part)
	return part
}

// String returns the line.
func (s *Status) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parts) > 0 {
		var all []string
		for i, part := range s.parts {
			all = append(all, s.names[i]+": "+part.String())
		}
		return strings.Join(all, "; ")
	}
	line := s.link
	if s.refused > 0 {
		line += fmt.Sprintf(", which refuses %d subscriptions", s.refused)
	}
	if s.course != "" {
		line += "; " + s.course
	}
	return line
}

// LinkChanged notes whether the session with the broker is up, and if not, why.
func (s *Status) LinkChanged(up bool, err error) {
	link := "connected to the broker"
	if !up {
		link = fmt.Sprintf("not connected to the broker: %v", err)
	}
	s.links(link)
}

// Leaves says that an agent has given up the link until then.
func (s *Status) Leaves(back time.Time) {
	s.links("away from the broker by plan, until " + back.Local().Format(time.DateTime))
}

func (s *Status) links(link string) {
	s.mu.Lock()
	s.link = link
	s.mu.Unlock()
	s.hint()
}

// Refuses notes how many subscriptions the broker refuses.
func (s *Status) Refuses(n int) {
	s.mu.Lock()
	s.refused = n
	s.mu.Unlock()
	s.hint()
}

// Set notes what the daemon does, such as "round 7 is open".
func (s *Status) Set(format string, args ...any) {
	s.mu.Lock()
	s.course = fmt.Sprintf(format, args...)
	s.mu.Unlock()
	s.hint()
}

// hint wakes the supervisor, which reads the line later: several changes may be one message.
func (s *Status) hint() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
