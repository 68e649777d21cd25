package mqtt

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// DefaultPrefix is the default prefix of all topics.
const DefaultPrefix = "fl/v1"

// ManifestPartName is the topic level of the manifest (list of chunk hashes) of a blob or update. The topic level of a
// chunk is its number.
const ManifestPartName = "m"

// selfTestLevel is the last level of a self-test topic. It cannot be mistaken for a blob's hash or a client id.
const selfTestLevel = "loop"

// rootDocumentLevel is the topic level of root documents, at the position of a blob's hash.
const rootDocumentLevel = "root"

const (
	maxPrefix            = 64 // maximum length in bytes of the topic prefix
	maxTransferNameBytes = 64 // maximum length in bytes of the name of a transfer or blob
	maxPartDigits        = 6  // maximum number of digits of a part number
	maxCellNameBytes     = 48 // maximum length in bytes of the name of a cell
)

// Topics builds the topics of one federation. The topic level of an agent is its client id, {federation}-{agent}, so
// that a broker's access rules can match a topic to a user. For an invalid name the methods return the empty topic,
// which every Conn rejects.
type Topics struct {
	Federation            string
	federationTopicPrefix string // prefix and federation name, with a trailing slash
}

// NewTopics returns the topics of a federation under a prefix. If the prefix is empty, it is DefaultPrefix. Some
// brokers allow at most seven slashes in a topic; with the default prefix the longest topic has seven slashes.
func NewTopics(prefix, federation string) (Topics, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if err := wire.FederationName(federation).Validate(); err != nil {
		return Topics{}, fmt.Errorf("mqtt: %w", err)
	}
	if len(prefix) > maxPrefix {
		return Topics{}, fmt.Errorf("mqtt: topic prefix %.64q has %d bytes, which exceeds the limit of "+
			"%d", prefix, len(prefix),
			maxPrefix)
	}
	for level := range strings.SplitSeq(prefix, "/") {
		if !isTopicLevelName(level, maxPrefix) {
			return Topics{}, fmt.Errorf("mqtt: topic prefix %q: levels may only contain letters, digits, '.', '_' "+
				"and '-', as in %s", prefix, DefaultPrefix)
		}
	}
	return Topics{Federation: federation, federationTopicPrefix: prefix + "/" + federation + "/"}, nil
}

// ClientID returns the MQTT client id and user name of an agent or of the coordinator. It returns "" if the id is
// invalid.
func (t Topics) ClientID(agent wire.AgentID) string {
	if t.federationTopicPrefix == "" || agent.Validate() != nil {
		return ""
	}
	return t.Federation + "-" + string(agent)
}

// Announcement returns the topic of announcements to all agents.
func (t Topics) Announcement() string { return t.joinLevels("round") }

// AllAnnouncementsFilter returns the filter for the announcements of all federations with the same prefix.
func (t Topics) AllAnnouncementsFilter() string {
	if t.federationTopicPrefix == "" {
		return ""
	}
	return t.prefix() + "+/round"
}

// IsForeignAnnouncement reports whether topic carries the announcements of another federation with the same prefix.
func (t Topics) IsForeignAnnouncement(topic string) bool {
	rest, ok := strings.CutPrefix(topic, t.prefix())
	name, round := strings.CutSuffix(rest, "/round")
	return ok && round && t.federationTopicPrefix != "" && name != t.Federation && !strings.Contains(name, "/")
}

// prefix returns the prefix with a trailing slash.
func (t Topics) prefix() string { return strings.TrimSuffix(t.federationTopicPrefix, t.Federation+"/") }

// CoordinatorToAgent returns the topic of the coordinator's messages to one agent.
func (t Topics) CoordinatorToAgent(agent wire.AgentID) string { return t.agentTopic("d", agent) }

// Presence returns the topic of an agent's presence and will.
func (t Topics) Presence(agent wire.AgentID) string { return t.agentTopic("p", agent) }

// AgentToCoordinator returns the topic of an agent's messages to the coordinator.
func (t Topics) AgentToCoordinator(agent wire.AgentID) string { return t.agentTopic("s", agent) }

// SelfTest returns the topic of the self-test of an agent or the coordinator. No other client uses it. It is next to
// the client's other topics, so that the same access rules apply, and outside the coordinator's filters.
func (t Topics) SelfTest(id wire.AgentID) string {
	if id == wire.CoordinatorID {
		return t.joinLevels("m", selfTestLevel)
	}
	if own := t.agentTopic("s", id); own != "" {
		return own + "/" + selfTestLevel
	}
	return ""
}

// BlobPart returns the topic of a part (chunk or manifest) of the blob with the given hash.
func (t Topics) BlobPart(hashHex, part string) string {
	if !isHexHash(hashHex) || !isPartName(part) {
		return ""
	}
	return t.joinLevels("m", hashHex, part)
}

// RootDocument returns the topic of a version of the root document. Every client that may read blobs may read it.
func (t Topics) RootDocument(version wire.RootVersion) string {
	return t.joinLevels("m", rootDocumentLevel, strconv.FormatUint(uint64(version), 10))
}

// UpdatePart returns the topic of a part of an agent's update. transfer is the name of the update's upload.
func (t Topics) UpdatePart(agent wire.AgentID, transfer, part string) string {
	base := t.agentTopic("u/0", agent)
	if base == "" || !isTopicLevelName(transfer, maxTransferNameBytes) || !isPartName(part) {
		return ""
	}
	return base + "/" + transfer + "/" + part
}

// PeerPart returns the topic of a part of an agent's messages to its neighbours in a round.
func (t Topics) PeerPart(agent wire.AgentID, round wire.RoundID, part string) string {
	base := t.agentTopic("x", agent)
	if base == "" || !isPartName(part) || part == ManifestPartName {
		return ""
	}
	return base + "/" + strconv.FormatUint(uint64(round), 10) + "/" + part
}

// PeerPartsFilter returns a neighbour's filter for all of an agent's messages in a round.
func (t Topics) PeerPartsFilter(agent wire.AgentID, round wire.RoundID) string {
	base := t.agentTopic("x", agent)
	if base == "" {
		return ""
	}
	return base + "/" + strconv.FormatUint(uint64(round), 10) + "/+"
}

// Beacon returns the topic of an agent's beacon in a cell.
func (t Topics) Beacon(cell string, agent wire.AgentID) string {
	if CheckCellName(cell) != nil {
		return ""
	}
	return t.agentTopic("b/"+cell, agent)
}

// CellBeaconsFilter returns the filter for the beacons of a cell.
func (t Topics) CellBeaconsFilter(cell string) string {
	if CheckCellName(cell) != nil {
		return ""
	}
	return t.joinLevels("b", cell, "+")
}

// CheckCellName returns an error if a cell name cannot be used in a topic.
func CheckCellName(cell string) error {
	if !isTopicLevelName(cell, maxCellNameBytes) {
		return fmt.Errorf("mqtt: cell %.64q must consist of 1 to %d letters, digits, '.', '_' or "+
			"'-'", cell, maxCellNameBytes)
	}
	return nil
}

// AllUpdatePartsFilter returns the coordinator's filter for all parts of all agents' updates.
func (t Topics) AllUpdatePartsFilter() string { return t.joinLevels("u/0/+/+/+") }

// AllPresencesFilter returns the coordinator's filter for the presence of all agents.
func (t Topics) AllPresencesFilter() string { return t.joinLevels("p/+") }

// AllAgentToCoordinatorFilter returns the coordinator's filter for messages from all agents.
func (t Topics) AllAgentToCoordinatorFilter() string { return t.joinLevels("s/+") }

// AllCoordinatorToAgentFilter returns the filter for the coordinator's messages to all agents.
func (t Topics) AllCoordinatorToAgentFilter() string { return t.joinLevels("d/+") }

// AllPeerPartsFilter returns the filter for all messages between neighbours.
func (t Topics) AllPeerPartsFilter() string { return t.joinLevels("x/+/+/+") }

// PeerPartsProbeTopic returns a topic that AllPeerPartsFilter matches but no agent uses. It contains the coordinator's
// client id.
func (t Topics) PeerPartsProbeTopic() string {
	return t.joinLevels("x", t.ClientID(wire.CoordinatorID), "0/0")
}

// AllBeaconsFilter returns the filter for the beacons of all cells.
func (t Topics) AllBeaconsFilter() string { return t.joinLevels("b/+/+") }

func (t Topics) agentTopic(level string, agent wire.AgentID) string {
	if agent.ValidateNonCoordinator() != nil {
		return ""
	}
	return t.joinLevels(level, t.ClientID(agent))
}

// joinLevels returns the topic with the given levels, or "" for the zero Topics.
func (t Topics) joinLevels(levels ...string) string {
	if t.federationTopicPrefix == "" {
		return ""
	}
	return t.federationTopicPrefix + strings.Join(levels, "/")
}

// ParseTopic splits an incoming topic. agent is set for KindCoordinatorToAgent, KindUpdate, KindPresence,
// KindAgentToCoordinator, KindSelfTest, KindPeer and KindBeacon. id is the transfer for KindUpdate, the hash for
// KindBlob, the round for KindPeer or the cell for KindBeacon. part is set for KindUpdate, KindBlob and KindPeer; for
// KindRoot it is the version. ParseTopic accepts only topics that the methods of t return.
func (t Topics) ParseTopic(topic string) (kind TopicKind, agent wire.AgentID, id, part string, err error) {
	unknown := func(err error) (TopicKind, wire.AgentID, string, string, error) {
		return KindUnknown, "", "", "", fmt.Errorf("mqtt: topic %.128q: %w", topic, err)
	}
	rest, ok := strings.CutPrefix(topic, t.federationTopicPrefix)
	if !ok || t.federationTopicPrefix == "" {
		return unknown(fmt.Errorf("the topic does not belong to federation %s", t.Federation))
	}
	switch levels := strings.Split(rest, "/"); {
	case rest == "round":
		return KindAnnouncement, "", "", "", nil
	case rest == "m/"+selfTestLevel:
		return KindSelfTest, wire.CoordinatorID, "", "", nil
	case levels[0] == "s" && len(levels) == 3 && levels[2] == selfTestLevel:
		kind = KindSelfTest
		agent, err = t.parseClientID(levels[1])
	case levels[0] == "m" && len(levels) == 3 && levels[1] == rootDocumentLevel:
		if n, err := strconv.ParseUint(levels[2], 10, 32); err != nil || strconv.FormatUint(n, 10) != levels[2] {
			return unknown(errors.New("the topic has an invalid root document version"))
		}
		return KindRoot, "", "", levels[2], nil
	case levels[0] == "m" && len(levels) == 3:
		if !isHexHash(levels[1]) || !isPartName(levels[2]) {
			return unknown(errors.New("the topic has an invalid blob hash or part"))
		}
		return KindBlob, "", levels[1], levels[2], nil
	case levels[0] == "u" && len(levels) == 5 && levels[1] == "0":
		if !isTopicLevelName(levels[3], maxTransferNameBytes) || !isPartName(levels[4]) {
			return unknown(errors.New("the topic has an invalid transfer or part"))
		}
		kind, id, part = KindUpdate, levels[3], levels[4]
		agent, err = t.parseClientID(levels[2])
	case levels[0] == "x" && len(levels) == 4:
		if n, err := strconv.ParseUint(levels[2], 10, 64); err != nil || strconv.FormatUint(n, 10) != levels[2] ||
			!isPartName(levels[3]) || levels[3] == ManifestPartName {
			return unknown(errors.New("the topic has an invalid round or part"))
		}
		kind, id, part = KindPeer, levels[2], levels[3]
		agent, err = t.parseClientID(levels[1])
	case levels[0] == "b" && len(levels) == 3:
		if err := CheckCellName(levels[1]); err != nil {
			return unknown(err)
		}
		kind, id = KindBeacon, levels[1]
		agent, err = t.parseClientID(levels[2])
	case len(levels) == 2 && topicKindOfLevel(levels[0]) != KindUnknown:
		kind = topicKindOfLevel(levels[0])
		agent, err = t.parseClientID(levels[1])
	default:
		return unknown(errors.New("the topic is not used by the protocol"))
	}
	if err != nil {
		return unknown(err)
	}
	return kind, agent, id, part, nil
}

func (t Topics) parseClientID(device string) (wire.AgentID, error) {
	id, ok := strings.CutPrefix(device, t.Federation+"-")
	if !ok {
		return "", fmt.Errorf("%.96q is not a client id of federation %s", device, t.Federation)
	}
	agent := wire.AgentID(id)
	return agent, agent.ValidateNonCoordinator()
}

func isHexHash(s string) bool {
	return s != "" && len(s) <= maxTransferNameBytes && strings.Trim(s, "0123456789abcdef") == ""
}

// isPartName reports whether s is ManifestPartName or a decimal number without leading zeros.
func isPartName(s string) bool {
	if s == ManifestPartName || s == "0" {
		return true
	}
	return s != "" && s[0] != '0' && len(s) <= maxPartDigits && strings.Trim(s, "0123456789") == ""
}

func isTopicLevelName(s string, most int) bool {
	return s != "" && len(s) <= most &&
		strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}
