package daemon

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/internal/status"
)

// StatusLine is the one-line status of a daemon that `systemctl status` shows. It combines the condition boards of all
// federations of the daemon.
type StatusLine struct {
	boardChanged chan struct{} // channel with one element if a board has changed

	mu          sync.Mutex
	federations []string // name of each board's federation; "" if the daemon is in only one federation
	boards      []*status.ConditionBoard
}

// NewStatusLine returns the status line of a daemon without boards.
func NewStatusLine() *StatusLine { return &StatusLine{boardChanged: make(chan struct{}, 1)} }

// NewBoard adds the board of a federation. The name is empty if the daemon is in one federation. The daemon is not
// ready until the caller resolves the board's condition status.StartingCondition.
func (s *StatusLine) NewBoard(federation string) *status.ConditionBoard {
	b := status.NewBoard(time.Now, s.boardChanged)
	b.RaiseCondition(status.StartingCondition)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.federations, s.boards = append(s.federations, federation), append(s.boards, b)
	return b
}

// String returns the status line.
func (s *StatusLine) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for i, b := range s.boards {
		line := b.StatusLine()
		if name := s.federations[i]; name != "" {
			line = name + ": " + line
		}
		all = append(all, line)
	}
	return strings.Join(all, "; ")
}

// ReadinessErr returns an error that lists the conditions that make the daemon not ready, or nil.
func (s *StatusLine) ReadinessErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []error
	for _, b := range s.boards {
		all = append(all, b.ReadinessErr())
	}
	return errors.Join(all...)
}
