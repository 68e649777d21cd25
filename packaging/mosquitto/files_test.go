package mosquitto_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
	"github.com/fedmesh/fedmesh/wire"
)

// rules returns the acl file of a federation. Its agents also mix with their neighbours over the same broker.
func rules(t *testing.T, federation wire.FederationName, agents ...wire.AgentID) []byte {
	t.Helper()
	return written(t, federation, agents, true)
}

func written(t testing.TB, federation wire.FederationName, agents []wire.AgentID, mix bool) []byte {
	t.Helper()
	table, err := acl.NewRuleTable("")
	if err != nil {
		t.Fatal(err)
	}
	text, err := table.MosquittoACLFile(federation, agents, mix)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSampleIsWhatTheProgramWrites(t *testing.T) {
	explanation, sample, ok := bytes.Cut(mosquitto.ACL, []byte("\n\n"))
	if !ok {
		t.Fatal("the sample has no explanation")
	}
	for line := range strings.Lines(string(explanation)) {
		if !strings.HasPrefix(line, "#") {
			t.Errorf("the explanation has the line %q", line)
		}
	}
	if want := rules(t, "plant_7", "press-01", "press-02"); !bytes.Equal(sample, want) {
		t.Errorf("the sample is\n%s\nwant\n%s", sample, want)
	}
}

// TestFilesAgree checks that the two shipped configurations differ only in the listener and the authentication.
func TestFilesAgree(t *testing.T) {
	only := func(lines, others []string) string {
		var own []string
		for _, l := range lines {
			if key, _, _ := strings.Cut(l, " "); !strings.Contains("\n"+strings.Join(others, "\n")+"\n", "\n"+l+"\n") {
				own = append(own, key)
			}
		}
		return strings.Join(own, " ")
	}
	tls, plain := brokers.ConfigLines(mosquitto.Conf), brokers.ConfigLines(mosquitto.PlainConf)
	if got, want := only(tls, plain),
		"listener cafile certfile keyfile require_certificate use_identity_as_username"; got != want {
		t.Errorf("only with TLS: %s, want %s", got, want)
	}
	if got, want := only(plain, tls), "listener password_file"; got != want {
		t.Errorf("only without: %s, want %s", got, want)
	}
}
