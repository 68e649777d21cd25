package acl

import (
	"math"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// accessMode is the access that a rule grants, as written in Mosquitto's configuration.
type accessMode string

const (
	read      accessMode = "read"
	write     accessMode = "write"
	readWrite accessMode = "readwrite"
)

// userPlaceholder is the filter level that represents the user's own name.
const userPlaceholder = "%u"

// rule grants access to the topics that match a filter. The filter omits the leading {prefix}/{federation}/.
type rule struct {
	access accessMode
	filter string
}

var (
	// deviceRules lists exactly the topics that package mqtt builds for a device. With access to any other topic a
	// device could retain messages without limit.
	deviceRules = []rule{
		{read, "round"},
		{read, "m/+/+"},
		{read, "d/" + userPlaceholder},
		{write, "s/" + userPlaceholder},
		{readWrite, "s/" + userPlaceholder + "/loop"},
		{readWrite, "p/" + userPlaceholder},
		{write, "u/0/" + userPlaceholder + "/+/+"},
	}
	// mixingDeviceRules lists the rules of a device if neighbours also exchange parameters through this broker.
	mixingDeviceRules = slices.Concat(deviceRules, []rule{
		{read, "x/+/+/+"},
		{read, "b/+/+"},
		{write, "x/" + userPlaceholder + "/+/+"},
		{write, "b/+/" + userPlaceholder},
	})
	coordinatorRules = []rule{{readWrite, "#"}}
)

// rulesOfUser returns the rules for the coordinator or for a device.
func rulesOfUser(id wire.AgentID, mixes bool) []rule {
	switch {
	case id == wire.CoordinatorID:
		return coordinatorRules
	case mixes:
		return mixingDeviceRules
	}
	return deviceRules
}

// RuleTable holds the access rules for all federations under one topic prefix.
type RuleTable struct{ prefix string }

// NewRuleTable returns the rules under a prefix. If the prefix is empty, it is mqtt.DefaultPrefix.
func NewRuleTable(prefix string) (RuleTable, error) {
	if prefix == "" {
		prefix = mqtt.DefaultPrefix
	}
	if _, err := mqtt.NewTopics(prefix, "any"); err != nil {
		return RuleTable{}, err
	}
	return RuleTable{prefix}, nil
}

// Allowed reports whether a user may publish to a topic (if toWrite is true), or subscribe to a filter and receive its
// messages (if toWrite is false). A filter is allowed if a single rule covers all of it. A user whose name is not
// {federation}-{id} has no access. Shared subscriptions are never allowed, and the zero RuleTable allows no access.
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

// deviceRetainedBytesQuota is sufficient for a presence message, beacons, and messages during a change of topics.
const deviceRetainedBytesQuota = 256 << 10

// RetainedBytesQuota returns the maximum total size in bytes of the messages that a user may retain. Only coordinators
// have a large quota.
func (t RuleTable) RetainedBytesQuota(name string) int {
	if _, id, _ := strings.Cut(name, "-"); wire.AgentID(id) == wire.CoordinatorID {
		return math.MaxInt
	}
	return deviceRetainedBytesQuota
}

func (r rule) grantsAccess(toWrite bool) bool {
	return r.access == readWrite || (r.access == write) == toWrite
}

// cutLeadingLevels removes the given topic levels from the beginning of a filter. It reports whether the filter began
// with these levels.
func cutLeadingLevels(filter, levels string) (string, bool) {
	rest, ok := strings.CutPrefix(filter, levels)
	if !ok {
		return "", false
	}
	return strings.CutPrefix(rest, "/")
}

// filterCovers reports whether the filter of a rule matches every topic that another filter matches. The other filter
// may be a single topic.
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
		case !wantMore:
			return !mayMore || mayRest == "#"
		case !mayMore:
			return false
		}
		rule, filter = mayRest, wantRest
	}
}
