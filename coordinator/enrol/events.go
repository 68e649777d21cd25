package enrol

import (
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Metrics are the metrics of the events of enrolment.
var Metrics []*observe.Metric

// The events.
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

func (DeviceJoined) Describe(*observe.Description)       {}
func (JoinRefused) Describe(*observe.Description)        {}
func (CredentialsRenewed) Describe(*observe.Description) {}
func (RenewRefused) Describe(*observe.Description)       {}
func (OpenJoinChanged) Describe(*observe.Description)    {}
