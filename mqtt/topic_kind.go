package mqtt

// TopicKind is what a topic carries.
type TopicKind uint8

// The kinds of topics.
const (
	KindUnknown            TopicKind = iota
	KindAnnouncement                 // announcements, to all
	KindCoordinatorToAgent           // from the coordinator to one agent
	KindBlob                         // a part of a model, task or evaluation set
	KindUpdate                       // a part of an agent's update
	KindPresence                     // an agent's presence, or its will
	KindAgentToCoordinator           // from an agent to the coordinator
	KindSelfTest                     // a self-test's, from someone to itself
	KindPeer                         // from an agent to its neighbours
	KindBeacon                       // an agent is there: to all of its cell
	KindRoot                         // a root document, to all
)

// TopicKinds returns all kinds, for closed label sets.
func TopicKinds() []TopicKind {
	return []TopicKind{KindUnknown, KindAnnouncement, KindCoordinatorToAgent, KindBlob, KindUpdate, KindPresence,
		KindAgentToCoordinator, KindSelfTest,
		KindPeer, KindBeacon, KindRoot}
}

// String returns one of eleven words, fit for a metric's label.
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

// topicKindOfLevel is the kind of topics that end in a level and a client id.
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
