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
	// DeviceJoined: a device was taken in, and is in the list. Again says that its answer was lost before.
	DeviceJoined struct {
		Agent, ReplacedAgent wire.AgentID
		IsRepeated           bool
	}
	// JoinRefused: a join was refused. Without a token the device is only what it says.
	JoinRefused struct {
		Agent  wire.AgentID
		From   string
		Reason wire.EnrolmentRefusal
		Err    error // of JoinFailed
	}
	// CredentialsRenewed: a device has got another key, a certificate until then, or both.
	CredentialsRenewed struct {
		Agent                wire.AgentID
		KeyChanged           bool
		IsRepeated           bool      // it had the key already: the answer was lost
		CertificateExpiresAt time.Time // zero without a certificate
	}
	// RenewRefused: a device gets no other key or certificate.
	RenewRefused struct {
		Agent  wire.AgentID
		Reason wire.RenewalRefusal
		Err    error // nil if the reason says it all
	}
	// OpenJoinChanged: until then any device with the open token may join; the zero time: no more.
	OpenJoinChanged struct{ OpenUntil time.Time }
)

func (DeviceJoined) fact()       {}
func (JoinRefused) fact()        {}
func (CredentialsRenewed) fact() {}
func (RenewRefused) fact()       {}
func (OpenJoinChanged) fact()    {}
