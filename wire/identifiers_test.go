package wire_test

import (
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func TestFederation(t *testing.T) {
	for _, c := range []struct {
		name wire.FederationName
		ok   bool
	}{
		{"a", true}, {"plant_7", true}, {"_", true}, {"0", true}, {wire.FederationName(strings.Repeat("z", 32)), true},
		{"", false}, {wire.FederationName(strings.Repeat("z", 33)), false},
		{"plant-7", false}, {"Plant", false}, {"plant.7", false}, {"plant/7", false}, {"plant 7", false},
		{"+", false}, {"#", false}, {"$share", false}, {"pl\x00nt", false}, {"plänt", false}, {"\xff", false},
		{"a\n", false},
	} {
		if err := c.name.Validate(); (err == nil) != c.ok {
			t.Errorf("%q: error %v", c.name, err)
		}
	}
}

func TestAgentID(t *testing.T) {
	for _, c := range []struct {
		id        wire.AgentID
		ok, agent bool
	}{
		{"a", true, true}, {"press-01", true, true}, {"A.b_C-9", true, true}, {"-", true, true}, {".", true, true},
		{"..", true, true},
		{wire.AgentID(strings.Repeat("Z", 48)), true, true},
		{"coordinator", true, false}, {"Coordinator", true, true}, {"coordinator2", true, true},
		{"", false, false}, {wire.AgentID(strings.Repeat("Z", 49)), false, false},
		{"press/01", false, false}, {"press 01", false, false}, {"press+01", false, false}, {"press#", false, false},
		{"$SYS", false, false}, {"press:01", false, false}, {"pr\x00ss", false, false}, {"pressé", false, false},
		{"\xff", false, false}, {"a\r", false, false},
	} {
		if err := c.id.Validate(); (err == nil) != c.ok {
			t.Errorf("%q: error %v", c.id, err)
		}
		if err := c.id.ValidateNonCoordinator(); (err == nil) != c.agent {
			t.Errorf("%q as an agent: error %v", c.id, err)
		}
	}
}

// TestErrorsOfNamesAreShort checks that errors about invalid names are short and contain no control characters.
func TestErrorsOfNamesAreShort(t *testing.T) {
	long := strings.Repeat("\x1b[2J", 10000)
	for _, err := range []error{wire.FederationName(long).Validate(), wire.AgentID(long).Validate()} {
		if err == nil || len(err.Error()) > 500 || strings.ContainsRune(err.Error(), '\x1b') {
			t.Errorf("error %v", err)
		}
	}
}

func TestDigestTexts(t *testing.T) {
	d := digestOf([]byte("fedmesh"))
	if s := d.String(); len(s) != 64 || d.TopicLevel() != s[:32] {
		t.Errorf("digest %s is %s in topics", s, d.TopicLevel())
	}
	if d.IsZero() || !(wire.Digest{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}
