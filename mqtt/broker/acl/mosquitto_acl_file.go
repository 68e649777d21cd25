package acl

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// MosquittoACLFile writes the rules for one federation as Mosquitto's acl_file: a
// section for its coordinator and one for each agent, in the order of their
// ids. Several federations at one broker are several such texts in one file.
//
// The rules for neighbours are there if the devices mix. A broker without them reads the rules of 10,000 devices in two
// thirds of the time, in which it stands still.
//
// Mosquitto has patterns, with %u for the user's name, that would need no list
// of agents. They bind every user of the broker, and cannot look for a
// federation inside a name: "pattern read fl/v1/air/m/+/+" would open the models
// of air to the devices of all other federations, and "pattern write
// fl/v1/air/p/%u" would let those devices fill air's topics with names of
// their own. So each user is listed; one that is not may do nothing.
func (t RuleTable) MosquittoACLFile(federation wire.FederationName, agents []wire.AgentID, mix bool) ([]byte, error) {
	if t.prefix == "" {
		return nil, errors.New("acl: no topic prefix; make the table with New")
	}
	if err := federation.Validate(); err != nil {
		return nil, fmt.Errorf("acl: %w", err)
	}
	sorted := slices.Clone(agents)
	slices.Sort(sorted)
	var out bytes.Buffer
	fmt.Fprintf(&out, "# Federation %s: its coordinator and %d devices. Written by a program; change the list of "+
		"agents instead.\n", federation, len(sorted))
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
