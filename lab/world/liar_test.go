package world_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/lab/world"
)

const (
	toCoordinator = "coordinator: coordinator.MessageDropped "
	toAgent       = ": agent.MessageDropped "
	refused       = "coordinator: round.UpdateRefused "
)

// refusals contains, for each lie, the text that must be in the transcript. An empty text means that the receiver
// ignores the lie without an event.
var refusals = map[int]map[world.Lie]string{
	world.Coordinator: {
		"accepts another update":          "",
		"accepts for another round":       "",
		"accepts for another run":         "",
		"refuses another update":          "",
		"refuses for another round":       "",
		"refuses for another run":         "",
		"lends chunks of another update":  "",
		"lends chunks beyond the end":     "",
		"invites to another announcement": "",
		"invites another":                 toAgent + "foreign",
		"from an older epoch":             toAgent + "older_epoch",
		"from another federation":         toAgent + "foreign",
		"by another's name":               toAgent + "foreign",
		"with another's signature":        toAgent + "bad_signature",
		"what agents say":                 toAgent + "sealed", // a report that is not encrypted
		"an older announcement":           "round.AnnouncementIgnored older",
		"two announcements at one place":  "round.AnnouncementIgnored conflict",
	},
	1: {
		"an update of another run":               refused + "wrong_round",
		"an update of a later round":             toCoordinator + "later_place",
		"an update of an earlier round":          refused + "late",
		"an update of another base":              refused + "wrong_base",
		"an update of another kind":              refused + "wrong_round",
		"an update of another schema":            refused + "wrong_schema",
		"an update with a section":               refused + "unsupported",
		"an update of other rows":                refused + "malformed",
		"an update of other bytes":               refused + "bad_hash",
		"an update under another's name":         toCoordinator + "malformed",
		"another update, after one was accepted": refused + "conflict",
		"chunks of noise":                        "",
		"chunks of another's":                    "",
		"joins unasked":                          "",
		"declines an unknown announcement":       "",
		"a hello to another announcement":        toCoordinator + "outdated",
		"a hello from later":                     "",
		"from another federation":                toCoordinator + "foreign",
		"by another's name":                      toCoordinator + "foreign",
		"with another's signature":               toCoordinator + "bad_signature",
		"by a stranger":                          toCoordinator + "unknown_agent",
		"what the coordinator says":              toCoordinator + "foreign",
		"all once more":                          toCoordinator + "replayed",
		"noise":                                  toCoordinator + "malformed",
		"another version":                        toCoordinator + "version",
	},
}

// TestLies runs each lie for three rounds without other faults. The receiver must reject the false messages, and the
// run must continue.
func TestLies(t *testing.T) {
	for party, lies := range refusals {
		for _, name := range world.Lies(party) {
			t.Run(string(name), func(t *testing.T) {
				want, known := lies[name]
				if !known {
					t.Fatalf("what becomes of %q? add it to refusals", name)
				}
				p := world.Plan{Seed: 1, Agents: 4, Participants: 3, Quorum: 1, Rounds: 3,
					Faults: []world.Fault{{Kind: world.Lying, Party: party, For: 3 * time.Minute, Lie: name}}}
				if strings.Contains(string(name), "chunks") {
					p.Hidden = 3000
				}
				if strings.Contains(string(name), "invites") {
					p.Method = "feddec" // with other methods, the announcement already names the participants
				}
				var out bytes.Buffer
				if r := world.Run(p, world.Bugs{}, &out); r.Failure != "" {
					t.Error(r.Failure)
				}
				if s := out.String(); !strings.Contains(s, " sent a false message: ") || !strings.Contains(s,
					want+"\n") {
					t.Errorf("nobody tells %q", want)
				}
			})
		}
	}
}
