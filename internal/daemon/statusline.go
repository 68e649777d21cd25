package daemon

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// StatusLine is a line about the state of a daemon, made of its facts; `systemctl status` shows it.
type StatusLine struct {
	changed chan struct{} // holds an element after a change

	mu              sync.Mutex
	link, activity  string
	refused         int // subscriptions
	names           []string
	federationLines []*StatusLine // of the federations with these names, if there are several
}

// NewStatus returns the line of a daemon that is connecting to the broker.
func NewStatus() *StatusLine {
	return &StatusLine{changed: make(chan struct{}, 1), link: "connecting to the broker"}
}

// ForFederation returns the line about one of several federations, a part of this one; this one itself for an empty
// name.
func (s *StatusLine) ForFederation(name string) *StatusLine {
	if name == "" {
		return s
	}
	part := NewStatus()
	part.changed = s.changed
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names, s.federationLines = append(s.names, name), append(s.federationLines, part)
	return part
}

// String returns the line.
func (s *StatusLine) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.federationLines) > 0 {
		var all []string
		for i, part := range s.federationLines {
			all = append(all, s.names[i]+": "+part.String())
		}
		return strings.Join(all, "; ")
	}
	line := s.link
	if s.refused > 0 {
		line += fmt.Sprintf(", which refuses %d subscriptions", s.refused)
	}
	if s.activity != "" {
		line += "; " + s.activity
	}
	return line
}

// LinkChanged notes whether the session with the broker is up, and if not, why.
func (s *StatusLine) LinkChanged(up bool, err error) {
	link := "connected to the broker"
	if !up {
		link = fmt.Sprintf("not connected to the broker: %v", err)
	}
	s.setLinkText(link)
}

// SetPaused says that an agent has given up the link until then.
func (s *StatusLine) SetPaused(back time.Time) {
	s.setLinkText("away from the broker by plan, until " + back.Local().Format(time.DateTime))
}

func (s *StatusLine) setLinkText(link string) {
	s.mu.Lock()
	s.link = link
	s.mu.Unlock()
	s.signalChange()
}

// SetRefusedFilters notes how many subscriptions the broker refuses.
func (s *StatusLine) SetRefusedFilters(n int) {
	s.mu.Lock()
	s.refused = n
	s.mu.Unlock()
	s.signalChange()
}

// SetActivity notes what the daemon does, such as "round 7 is open".
func (s *StatusLine) SetActivity(format string, args ...any) {
	s.mu.Lock()
	s.activity = fmt.Sprintf(format, args...)
	s.mu.Unlock()
	s.signalChange()
}

// signalChange wakes the supervisor, which reads the line later: several changes may be one message.
func (s *StatusLine) signalChange() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
