package sim

import "fmt"

// Divergence says where the numbers of a run left the finite ones.
type Divergence struct {
	Run    int    `json:"run"`   // from 0
	Round  int    `json:"round"` // of feddec, the index t of z^t
	Reason string `json:"reason"`
}

// Error says what happened, and that the curves before it are kept.
func (d *Divergence) Error() string {
	return fmt.Sprintf("run %d diverged in round %d: %s", d.Run, d.Round, d.Reason)
}

// agentError is the divergence of an agent's local steps.
type agentError struct {
	agent int
	err   error
}

func (e *agentError) Error() string { return fmt.Sprintf("agent %d %v", e.agent, e.err) }
func (e *agentError) Unwrap() error { return e.err }

// replayError is what the files of a replay lack.
type replayError struct{ err error }

func lacksParticipants(round int) error {
	return &replayError{fmt.Errorf("participants.npy has none in round %d", round)}
}

func (e *replayError) Error() string { return e.err.Error() }
func (e *replayError) Unwrap() error { return e.err }
