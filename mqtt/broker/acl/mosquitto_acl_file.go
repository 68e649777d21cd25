package acl

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// MosquittoACLFile returns the rules for one federation in the format of Mosquitto's acl_file. The text has one section
// for the coordinator and one section for each agent, sorted by id. The texts of several federations can be
// concatenated.
//
// The rules for messages between neighbours are included only if mix is true. Without these rules, Mosquitto needs a
// third less time to read the rules of 10,000 devices. It serves no clients while it reads.
//
// Mosquitto's patterns, with %u for the user name, would need no list of agents. But they apply to every user of the
// broker and cannot match a federation within a name: "pattern read fl/v1/air/m/+/+" would open the models of
// federation air to all other federations, and "pattern write fl/v1/air/p/%u" would let their devices publish in air's
// topics. Therefore each user is listed; an unlisted user has no access.
func (t RuleTable) MosquittoACLFile(federation wire.FederationName, agents []wire.AgentID, mix bool) ([]byte, error) {
	if t.prefix == "" {
		return nil, errors.New("acl: RuleTable has no topic prefix: create it with NewRuleTable")
	}
	if err := federation.Validate(); err != nil {
		return nil, fmt.Errorf("acl: %w", err)
	}
	sorted := slices.Clone(agents)
	slices.Sort(sorted)
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Federation %s: coordinator and %d devices. Generated file: edit the list of agents "+
		"instead.\n", federation, len(sorted))
	t.writeUserSection(&out, federation, wire.CoordinatorID, mix)
	for i, agent := range sorted {
		if err := agent.ValidateNonCoordinator(); err != nil {
			return nil, fmt.Errorf("acl: federation %s: %w", federation, err)
		}
		if i > 0 && agent == sorted[i-1] {
			return nil, fmt.Errorf("acl: federation %s: agent %s is listed twice", federation, agent)
		}
		t.writeUserSection(&out, federation, agent, mix)
	}
	return out.Bytes(), nil
}

func (t RuleTable) writeUserSection(out *bytes.Buffer, federation wire.FederationName, id wire.AgentID, mix bool) {
	name := string(federation) + "-" + string(id)
	fmt.Fprintf(out, "\nuser %s\n", name)
	for _, r := range rulesOfUser(id, mix) {
		fmt.Fprintf(out, "topic %s %s/%s/%s\n", r.access, t.prefix, federation,
			strings.ReplaceAll(r.filter, userPlaceholder, name))
	}
}
