package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
)

// FederationName names a federation: 1 to 32 of a–z, 0–9 and _. It has no dash,
// so that the client id "federation-agent" can be read in one way only.
type FederationName string

// AgentID names an agent within a federation: 1 to 48 of A–Z, a–z, 0–9 and
// . _ -, and is not CoordinatorID when it is an agent's.
type AgentID string

// CoordinatorID is the sender of everything that the coordinator signs.
const CoordinatorID AgentID = "coordinator"

// Distinct numbers that would otherwise look alike.
type (
	// RunID names a run of a federation: the milliseconds of Unix time at its
	// creation, so that a later run has a larger id.
	RunID uint64
	// RoundID counts the rounds of a run, abandoned ones too, from 1.
	RoundID uint64
	// RoundAttempt counts the announcements of one round, from 1.
	RoundAttempt uint32
	// ModelVersion counts the aggregations behind a model: w_i has version i.
	ModelVersion uint64
	// Epoch is, from the coordinator, the fencing epoch its key was given and,
	// from an agent, the number of its start (boot epoch).
	Epoch uint64
	// RootVersion is the version of the root document, which says whose keys count. It is FirstRootVersion while there
	// is none.
	RootVersion uint32
	// Digest is a SHA-256.
	Digest [32]byte
)

// FirstRootVersion is the version of the root document that stands for the keys in the configuration.
const FirstRootVersion RootVersion = 1

// String returns the digest in 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// TopicLevel returns the first 16 bytes in hexadecimal digits, as topics name a blob.
func (d Digest) TopicLevel() string { return hex.EncodeToString(d[:16]) }

// IsZero reports whether the digest is the zero value, which stands for none.
func (d Digest) IsZero() bool { return d == Digest{} }

// Validate reports why f cannot name a federation.
func (f FederationName) Validate() error {
	if err := checkName(string(f), MaxFederation,
		func(c byte) bool { return isLowerLetter(c) || isDigit(c) || c == '_' }); err != nil {
		return fmt.Errorf("federation %q: %w; use a–z, 0–9 and _", shortenForError(string(f)), err)
	}
	return nil
}

// Validate reports why a cannot name an agent. CoordinatorID is valid here;
// where an agent is meant, see ValidateNonCoordinator.
func (a AgentID) Validate() error {
	ok := func(c byte) bool {
		return isLowerLetter(c) || isDigit(c) || 'A' <= c && c <= 'Z' || c == '_' || c == '-' || c == '.'
	}
	if err := checkName(string(a), MaxAgentID, ok); err != nil {
		return fmt.Errorf("agent id %q: %w; use A–Z, a–z, 0–9, '.', '_' and '-'", shortenForError(string(a)), err)
	}
	return nil
}

// ValidateNonCoordinator is Validate, and refuses the coordinator's name.
func (a AgentID) ValidateNonCoordinator() error {
	if a == CoordinatorID {
		return fmt.Errorf("agent id %q: this name is the coordinator's; choose another", a)
	}
	return a.Validate()
}

func checkName(s string, most int, ok func(byte) bool) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > most:
		return fmt.Errorf("has %d bytes, more than %d", len(s), most)
	}
	for i := range len(s) {
		if !ok(s[i]) {
			return fmt.Errorf("has %q at byte %d", s[i], i)
		}
	}
	return nil
}

func isLowerLetter(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool       { return '0' <= c && c <= '9' }

// shortenForError keeps a hostile name from flooding an error text.
func shortenForError(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
