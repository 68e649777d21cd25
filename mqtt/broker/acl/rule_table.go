package acl

import (
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// accessMode is what a rule grants, in Mosquitto's words.
type accessMode string

const (
	read      accessMode = "read"
	write     accessMode = "write"
	readWrite accessMode = "readwrite"
)

// userPlaceholder is the level of a rule's filter that stands for the user's own name.
const userPlaceholder = "%u"

// rule grants access to what a filter matches. The filter begins after
// {prefix}/{federation}/.
type rule struct {
	access accessMode
	filter string
}

var (
	// A device has the topics that package mqtt makes, and none beside or below them: it could retain messages there
	// without end.
	deviceRules = []rule{
		{read, "round"},
		{read, "m/+/+"},
		{read, "d/" + userPlaceholder},
		{write, "s/" + userPlaceholder},
		{readWrite, "s/" + userPlaceholder + "/loop"},
		{readWrite, "p/" + userPlaceholder},
		{write, "u/0/" + userPlaceholder + "/+/+"},
	}
	// Where neighbours mix through this broker, too.
	mixingDeviceRules = slices.Concat(deviceRules, []rule{
		{read, "x/+/+/+"},
		{read, "b/+/+"},
		{write, "x/" + userPlaceholder + "/+/+"},
		{write, "b/+/" + userPlaceholder},
	})
	coordinatorRules = []rule{{readWrite, "#"}}
)

// rulesOfUser tells a coordinator from a device, and whether the device mixes.
func rulesOfUser(id wire.AgentID, mixes bool) []rule {
	switch {
	case id == wire.CoordinatorID:
		return coordinatorRules
	case mixes:
		return mixingDeviceRules
	}
	return deviceRules
}

// RuleTable holds the rules for all federations under one topic prefix.
type RuleTable struct{ prefix string }

// NewRuleTable returns the rules under a prefix, which is mqtt.DefaultPrefix if empty.
func NewRuleTable(prefix string) (RuleTable, error) {
	if prefix == "" {
		prefix = mqtt.DefaultPrefix
	}
	if _, err := mqtt.NewTopics(prefix, "any"); err != nil {
		return RuleTable{}, err
	}
	return RuleTable{prefix}, nil
}

// Allowed decides whether a user may publish to a topic (toWrite), or
// subscribe to a filter and receive what it matches. A filter is allowed if
// one rule covers all of it. A user whose name is not {federation}-{id} may do
// nothing, and neither the zero Table nor a shared subscription allows any.
func (t RuleTable) Allowed(name, filter string, toWrite bool) bool {
	federation, id, ok := strings.Cut(name, "-")
	if !ok || wire.FederationName(federation).Validate() != nil || wire.AgentID(id).Validate() != nil {
		return false
	}
	rest, ok := cutLeadingLevels(filter, t.prefix)
	if !ok || t.prefix == "" {
		return false
	}
	if rest, ok = cutLeadingLevels(rest, federation); !ok {
		return false
	}
	for _, r := range rulesOfUser(wire.AgentID(id), true) {
		if r.grantsAccess(toWrite) && filterCovers(r.filter, name, rest) {
			return true
		}
	}
	return false
}

// deviceRetainedBytesQuota is for a presence, beacons, and messages on the way from a place
// to another.
const deviceRetainedBytesQuota = 256 << 10

// RetainedBytesQuota is how many bytes a user may have retained at a time: little, but for
// coordinators.
func (t RuleTable) RetainedBytesQuota(name string) int {
	if _, id, _ := strings.Cut(name, "-"); wire.AgentID(id) == wire.CoordinatorID {
		return math.MaxInt
	}
	return deviceRetainedBytesQuota
}

func (r rule) grantsAccess(toWrite bool) bool {
	return r.access == readWrite || (r.access == write) == toWrite
}

// cutLeadingLevels cuts levels off the beginning of a filter.
func cutLeadingLevels(filter, levels string) (string, bool) {
	rest, ok := strings.CutPrefix(filter, levels)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, "/")
}

// filterCovers reports whether a rule's filter matches every topic that another
// filter, or topic, matches.
func filterCovers(rule, name, filter string) bool {
	for {
		may, mayRest, mayMore := strings.Cut(rule, "/")
		want, wantRest, wantMore := strings.Cut(filter, "/")
		switch {
		case may == "#":
			return true
		case want == "#":
			return false
		case may == userPlaceholder && want != name:
			return false
		case may != userPlaceholder && may != "+" && may != want:
			return false
		case !wantMore: // "a/#" covers "a" too
			return !mayMore || mayRest == "#"
		case !mayMore:
			return false
		}
		rule, filter = mayRest, wantRest
	}
}
