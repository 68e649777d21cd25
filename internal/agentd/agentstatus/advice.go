package agentstatus

import (
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/wire"
)

// The log and the status report these problems of an agent with the same text.

// UnconfinedTrainerWarning returns the warning that a trainer has the same access as agentd, with the reason.
func UnconfinedTrainerWarning(f agent.ExternalTrainerStarted) string {
	return fmt.Sprintf("trainer %s is not confined (%s): it has the same access to memory and network as agentd",
		f.ConfiguredName, f.UnconfinedReason)
}

// StaleAnnouncementAdvice says that no announcement has come, and what to look at.
func StaleAnnouncementAdvice(wait time.Duration) string {
	return fmt.Sprintf("a round is open, but no new announcement has arrived for %s (three times the maximum duration "+
		"of a round): the coordinator is offline, or the broker withholds its announcements; see coordinator status",
		wait)
}

// CertificateEndingAdvice says that a device's certificate ends, and what to do.
func CertificateEndingAdvice(f agent.CertificateEnding) string {
	what := "expires in " + formatDays(f.TimeLeft)
	if f.TimeLeft <= 0 {
		what = "has expired"
	}
	why := "the coordinator has not answered; see that it runs, and that this device reaches it"
	if f.LastRefusal != 0 {
		why = "the coordinator refuses another one: " + agent.RenewRefusalText(f.LastRefusal)
	}
	return "the certificate for the broker " + what + ": " + why +
		"; a certificate of another authority must be renewed manually"
}

// formatDays is a time in whole days, or exactly if there are few.
func formatDays(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// ClockBehindAdvice says that the machine's clock is behind, and what to do.
func ClockBehindAdvice(f agent.ClockBehind) string {
	return fmt.Sprintf("clock is behind: using %s UTC for certificates, as the coordinator has signed or this program "+
		"was built, since the machine says %s; set it, and keep it right with NTP",
		f.UsedTime.UTC().Format(time.DateTime), f.Machine.UTC().Format(time.DateTime))
}

// RejectionAdvice says why the coordinator ignores a device's messages, with the remedy.
func RejectionAdvice(reason wire.RejectionReason) string {
	why := reason.String()
	switch reason {
	case wire.RejectedUnlisted:
		why = "its id is not in the list of agents, or the device was revoked; to admit it, run `coordinator enrol " +
			"--device ID` and `agentd join` in a federation with tokens, or add a line with its id and its " +
			"public key (`agentd key show`) to the coordinator's identity.agents_file and reload it"
	case wire.RejectedKey:
		why = "the list of agents has another key for its id; put its public key (`agentd key show`) into the " +
			"coordinator's identity.agents_file, and reload it"
	case wire.RejectedBehind:
		why = "its counter of starts is behind, as when the state folder was lost; run `coordinator devices reset " +
			"ID` at the coordinator"
	case wire.RejectedClone:
		why = "another device uses the same identity; give one of them an id and a key of its own, and restart it"
	}
	return "the coordinator ignores this device's messages: " + why
}
