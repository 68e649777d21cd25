package wire

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
)

// FederationName is the name of a federation: 1 to 32 characters of a–z, 0–9 and _. The name contains no hyphen, so
// that a client id "federation-agent" can be split unambiguously.
type FederationName string

// AgentID is the name of an agent within a federation: 1 to 48 characters of A–Z, a–z, 0–9 and . _ -. CoordinatorID is
// reserved for the coordinator.
type AgentID string

// CoordinatorID is the sender id of the coordinator's messages.
const CoordinatorID AgentID = "coordinator"

// Distinct types for identifiers and counters, so that they cannot be confused.
type (
	// RunID identifies a run of a federation. It is the creation time in milliseconds of Unix time, so later runs have
	// larger ids.
	RunID uint64
	// RoundID is the number of a round within a run, from 1. Abandoned rounds are counted.
	RoundID uint64
	// RoundAttempt is the number of the announcement of a round, starting with 1. A new attempt announces the same
	// round again.
	RoundAttempt uint32
	// ModelVersion is the number of aggregations from which a model results: the model w_i has the version i.
	ModelVersion uint64
	// Epoch is a number that increases when the sender is restored or restarted. It is the epoch of a coordinator, or
	// the number of an agent's start (boot epoch).
	Epoch uint64
	// RootVersion is the version of the root document, which defines the valid keys. It is FirstRootVersion if there is
	// no root document.
	RootVersion uint32
	// Digest is a SHA-256 hash.
	Digest [32]byte
)

// FirstRootVersion is the version used as long as the valid keys come from the configuration and not from a root
// document.
const FirstRootVersion RootVersion = 1

// String returns the digest as 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// TopicLevel returns the first 16 bytes of the digest as hexadecimal digits, which name a blob in MQTT topics.
func (d Digest) TopicLevel() string { return hex.EncodeToString(d[:16]) }

// IsZero reports whether the digest has the zero value, which means that there is no digest.
func (d Digest) IsZero() bool { return d == Digest{} }

// Validate returns an error if f is not a valid federation name.
func (f FederationName) Validate() error {
	if err := checkName(string(f), MaxFederation,
		func(c byte) bool { return isLowerLetter(c) || isDigit(c) || c == '_' }); err != nil {
		return fmt.Errorf("federation %q: %w; use only a–z, 0–9 and _", shortenForError(string(f)), err)
	}
	return nil
}

// Validate returns an error if a is not a valid name. It accepts CoordinatorID; see ValidateNonCoordinator.
func (a AgentID) Validate() error {
	ok := func(c byte) bool {
		return isLowerLetter(c) || isDigit(c) || 'A' <= c && c <= 'Z' || c == '_' || c == '-' || c == '.'
	}
	if err := checkName(string(a), MaxAgentID, ok); err != nil {
		return fmt.Errorf("agent id %q: %w; use only A–Z, a–z, 0–9, '.', '_' and '-'", shortenForError(string(a)), err)
	}
	return nil
}

// ValidateNonCoordinator is like Validate, but it also rejects CoordinatorID.
func (a AgentID) ValidateNonCoordinator() error {
	if a == CoordinatorID {
		return fmt.Errorf("agent id %q is reserved for the coordinator: choose another id", a)
	}
	return a.Validate()
}

func checkName(s string, most int, ok func(byte) bool) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > most:
		return fmt.Errorf("the name has %d bytes, which exceeds the limit of %d", len(s), most)
	}
	for i := range len(s) {
		if !ok(s[i]) {
			return fmt.Errorf("invalid character %q at byte %d", s[i], i)
		}
	}
	return nil
}

func isLowerLetter(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool       { return '0' <= c && c <= '9' }

// shortenForError shortens a string, so that a long invalid name does not flood an error text.
func shortenForError(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
