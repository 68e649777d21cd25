package sim

import "fmt"

// Divergence reports the run and the round in which the numbers of a simulation ceased to be finite.
type Divergence struct {
	Run    int    `json:"run"`   // index of the run, from 0
	Round  int    `json:"round"` // round of the divergence; for FedDec the iteration
	Reason string `json:"reason"`
}

// Error implements error.
func (d *Divergence) Error() string {
	return fmt.Sprintf("run %d diverged in round %d: %s", d.Run, d.Round, d.Reason)
}

// agentError is an error in the local steps of an agent.
type agentError struct {
	agent int
	err   error
}

func (e *agentError) Error() string { return fmt.Sprintf("agent %d %v", e.agent, e.err) }
func (e *agentError) Unwrap() error { return e.err }

// replayError is the error of a replay whose dump does not contain a required draw.
type replayError struct{ err error }

func lacksParticipants(round int) error {
	return &replayError{fmt.Errorf("participants.npy has no participants in round %d", round)}
}

func (e *replayError) Error() string { return e.err.Error() }
func (e *replayError) Unwrap() error { return e.err }
