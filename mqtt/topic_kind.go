package mqtt

// TopicKind is the kind of message that a topic carries.
type TopicKind uint8

// The kinds of topics.
const (
	KindUnknown      TopicKind = iota
	KindAnnouncement           // announcement of the coordinator to all agents
	KindCoordinatorToAgent
	KindBlob     // part of a model, task or evaluation set
	KindUpdate   // part of an agent's update
	KindPresence // presence or will of an agent
	KindAgentToCoordinator
	KindSelfTest // self-test message of a client to itself
	KindPeer     // message from an agent to its neighbours
	KindBeacon   // beacon of an agent to its cell
	KindRoot     // root document for all agents
)

// TopicKinds returns all kinds.
func TopicKinds() []TopicKind {
	return []TopicKind{KindUnknown, KindAnnouncement, KindCoordinatorToAgent, KindBlob, KindUpdate, KindPresence,
		KindAgentToCoordinator, KindSelfTest,
		KindPeer, KindBeacon, KindRoot}
}

// String returns the name of the kind for metric labels.
func (k TopicKind) String() string {
	switch k {
	case KindAnnouncement:
		return "round"
	case KindCoordinatorToAgent:
		return "direct"
	case KindBlob:
		return "blob"
	case KindUpdate:
		return "update"
	case KindPresence:
		return "presence"
	case KindAgentToCoordinator:
		return "status"
	case KindSelfTest:
		return "loop"
	case KindPeer:
		return "peer"
	case KindBeacon:
		return "beacon"
	case KindRoot:
		return "root"
	}
	return "unknown"
}

// topicKindOfLevel returns the kind of a topic that consists of this level and a client id.
func topicKindOfLevel(level string) TopicKind {
	switch level {
	case "d":
		return KindCoordinatorToAgent
	case "p":
		return KindPresence
	case "s":
		return KindAgentToCoordinator
	}
	return KindUnknown
}
