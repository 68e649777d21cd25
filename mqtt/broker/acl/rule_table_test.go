package acl_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
	"github.com/fedmesh/fedmesh/mqtt/broker/acl"
	"github.com/fedmesh/fedmesh/wire"
)

func table(t *testing.T, prefix string) acl.RuleTable {
	t.Helper()
	rules, err := acl.NewRuleTable(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestTable(t *testing.T) {
	rules, other := table(t, ""), table(t, "plant/v2")
	for _, row := range acltest.Table {
		elsewhere := strings.Replace(row.Topic, "fl/v1/", "plant/v2/", 1)
		for _, user := range acltest.Users {
			if got := rules.Allowed(user, row.Topic, false); got != row.MayRead(user) {
				t.Errorf("%s may read %s: %v", user, row.Topic, got)
			}
			if got := rules.Allowed(user, row.Topic, true); got != row.MayWrite(user) {
				t.Errorf("%s may write %s: %v", user, row.Topic, got)
			}
			if got := other.Allowed(user, elsewhere, false); got != row.MayRead(user) {
				t.Errorf("%s may read %s: %v", user, elsewhere, got)
			}
			if got := other.Allowed(user, row.Topic, false); got {
				t.Errorf("%s may read %s under another prefix", user, row.Topic)
			}
		}
	}
}

// TestQuota checks that a device has a small quota and a coordinator has space for whole models.
func TestQuota(t *testing.T) {
	rules := table(t, "")
	for name, least := range map[string]int{"air-press": 100 << 10, "air-coordinator": 1 << 30} {
		if got := rules.RetainedBytesQuota(name); got < least {
			t.Errorf("%s may retain %d bytes", name, got)
		}
	}
	for _, name := range []string{"air-press", "air", "", "coordinator", "air-coordinator-2", "air-coordinator2"} {
		if got := rules.RetainedBytesQuota(name); got > 1<<20 {
			t.Errorf("%q may retain %d bytes", name, got)
		}
	}
}

// TestFilters checks that a filter is allowed only if every topic that it matches is allowed.
func TestFilters(t *testing.T) {
	rules := table(t, "")
	for _, c := range []struct {
		user, filter string
		may          bool
	}{
		{"air-press", "fl/v1/air/m/0a1b/+", true},
		{"air-press", "fl/v1/air/m/+/m", true},
		{"air-press", "fl/v1/air/m/+/+", true},
		{"air-press", "fl/v1/air/m/#", false},
		{"air-press", "fl/v1/air/m", false},
		{"air-press", "fl/v1/air/x/+/12/+", true},
		{"air-press", "fl/v1/air/b/cell/+", true},
		{"air-press", "fl/v1/air/d/air-press", true},
		{"air-press", "fl/v1/air/d/+", false},
		{"air-press", "fl/v1/air/d/air-press/#", false}, // the filter also matches topics below the topic of the rule
		{"air-press", "fl/v1/air/round/#", false},
		{"air-press", "fl/v1/air/+", false},
		{"air-press", "fl/v1/air/+/air-press", false},
		{"air-press", "fl/v1/air/#", false},
		{"air-press", "fl/v1/+/round", false},
		{"air-press", "fl/+/air/round", false},
		{"air-press", "fl/v1/#", false},
		{"air-press", "#", false},
		{"air-press", "+/#", false},
		{"air-press", "$SYS/#", false},
		{"air-press", "$share/group/fl/v1/air/round", false},
		{"air-press", "", false},
		{"air-press", "fl/v1/air/", false},
		{"air-coordinator", "fl/v1/air/#", true},
		{"air-coordinator", "fl/v1/air/u/0/+/+/+", true},
		{"air-coordinator", "fl/v1/air/p/+", true},
		{"air-coordinator", "fl/v1/+/p/+", false},
		{"air-coordinator", "fl/v1/#", false},
		{"air-coordinator", "$SYS/#", false},
		{"air", "fl/v1/air/round", false},
		{"-press", "fl/v1//round", false},
		{"air-", "fl/v1/air/round", false},
		{"", "fl/v1/air/round", false},
		{"a+r-press", "fl/v1/a+r/round", false},
		{"+-press", "fl/v1/+/round", false},
		{"air-#", "fl/v1/air/round", false},
		{"air-a/b", "fl/v1/air/d/air-a/b", false},
		{"%u-press", "fl/v1/%u/round", false},
		{"air-%u", "fl/v1/air/d/air-%u", false},
	} {
		if got := rules.Allowed(c.user, c.filter, false); got != c.may {
			t.Errorf("%q may read %q: %v, want %v", c.user, c.filter, got, c.may)
		}
	}
	if (acl.RuleTable{}).Allowed("air-coordinator", "fl/v1/air/round", false) ||
		(acl.RuleTable{}).Allowed("air-coordinator", "/air/round", false) {
		t.Error("the zero Table allows something")
	}
}

func TestNewRefusesPrefix(t *testing.T) {
	for _, prefix := range []string{"a/", "/a", "a b", "+", strings.Repeat("a", 65)} {
		if _, err := acl.NewRuleTable(prefix); err == nil {
			t.Errorf("prefix %q is taken", prefix)
		}
	}
}

func TestMosquitto(t *testing.T) {
	got, err := table(t, "").MosquittoACLFile("air", []wire.AgentID{"b.2", "a_1"}, true)
	if err != nil {
		t.Fatal(err)
	}
	const want = `# Federation air: coordinator and 2 devices. Generated file: edit the list of agents instead.

user air-coordinator
topic readwrite fl/v1/air/#

user air-a_1
topic read fl/v1/air/round
topic read fl/v1/air/m/+/+
topic read fl/v1/air/d/air-a_1
topic write fl/v1/air/s/air-a_1
topic readwrite fl/v1/air/s/air-a_1/loop
topic readwrite fl/v1/air/p/air-a_1
topic write fl/v1/air/u/0/air-a_1/+/+
topic read fl/v1/air/x/+/+/+
topic read fl/v1/air/b/+/+
topic write fl/v1/air/x/air-a_1/+/+
topic write fl/v1/air/b/+/air-a_1

user air-b.2
`
	if !strings.HasPrefix(string(got), want) || strings.Count(string(got), "\nuser ") != 3 {
		t.Errorf("got\n%s", got)
	}
	if alone, err := table(t, "").MosquittoACLFile("air", []wire.AgentID{"a"}, false); err != nil ||
		bytes.Contains(alone, []byte("/x/")) || bytes.Contains(alone, []byte("/b/")) ||
		!bytes.HasSuffix(alone, []byte("topic write fl/v1/air/u/0/air-a/+/+\n")) {
		t.Errorf("of a device without neighbours: %s, %v", alone, err)
	}
	if other, err := table(t, "plant/v2").MosquittoACLFile("air", nil, false); err != nil ||
		!strings.Contains(string(other), "\ntopic readwrite plant/v2/air/#\n") {
		t.Errorf("under another prefix: %s, %v", other, err)
	}
}

func TestMosquittoRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		federation wire.FederationName
		agents     []wire.AgentID
		want       string
	}{
		"federation":     {"a-b", nil, "federation"},
		"a line break":   {"air", []wire.AgentID{"a\ntopic readwrite #"}, "agent id"},
		"wildcard":       {"air", []wire.AgentID{"+"}, "agent id"},
		"no name":        {"air", []wire.AgentID{""}, "is empty"},
		"coordinator":    {"air", []wire.AgentID{wire.CoordinatorID}, "choose another"},
		"the same twice": {"air", []wire.AgentID{"a", "b", "a"}, "agent a is listed twice"},
	} {
		if _, err := table(t, "").MosquittoACLFile(c.federation, c.agents, false); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error is %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := (acl.RuleTable{}).MosquittoACLFile("air", nil, false); err == nil {
		t.Error("the zero Table writes rules")
	}
}
