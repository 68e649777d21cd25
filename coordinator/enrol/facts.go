package enrol

import (
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// Observer is told what happens at a desk, one fact at a time.
type Observer interface{ ObserveEnrolment(Fact) }

// Fact is something that happened at a desk, or to a device that has joined.
//
//sumtype:decl
type Fact interface{ fact() }

// The facts.
type (
	// Joined: a device was taken in, and is in the list. Again says that its answer was lost before.
	Joined struct {
		Agent, Replaces wire.AgentID
		Again           bool
	}
	// Refused: a join was refused. Without a token the device is only what it says.
	Refused struct {
		Agent  wire.AgentID
		From   string
		Reason wire.JoinRefusal
		Err    error // of JoinFailed
	}
	// Renewed: a device has got another key, a certificate until then, or both.
	Renewed struct {
		Agent wire.AgentID
		Key   bool
		Again bool      // it had the key already: the answer was lost
		Until time.Time // zero without a certificate
	}
	// RenewRefused: a device gets no other key or certificate.
	RenewRefused struct {
		Agent  wire.AgentID
		Reason wire.RenewRefusal
		Err    error // nil if the reason says it all
	}
	// Opened: until then any device with the open token may join; the zero time: no more.
	Opened struct{ Until time.Time }
)

func (Joined) fact()       {}
func (Refused) fact()      {}
func (Renewed) fact()      {}
func (RenewRefused) fact() {}
func (Opened) fact()       {}
