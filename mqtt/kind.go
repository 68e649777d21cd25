package mqtt

// Kind is what a topic carries.
type Kind uint8

// The kinds of topics.
const (
	KindUnknown  Kind = iota
	KindRound         // announcements, to all
	KindDirect        // from the coordinator to one agent
	KindBlob          // a part of a model, task or evaluation set
	KindUpdate        // a part of an agent's update
	KindPresence      // an agent's presence, or its will
	KindStatus        // from an agent to the coordinator
	KindLoop          // a self-test's, from someone to itself
	KindPeer          // from an agent to its neighbours
	KindBeacon        // an agent is there: to all of its cell
	KindRoot          // a root document, to all
)

// String returns one of eleven words, fit for a metric's label.
func (k Kind) String() string {
	switch k {
	case KindRound:
		return "round"
	case KindDirect:
		return "direct"
	case KindBlob:
		return "blob"
	case KindUpdate:
		return "update"
	case KindPresence:
		return "presence"
	case KindStatus:
		return "status"
	case KindLoop:
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

// kindOf is the kind of topics that end in a level and a client id.
func kindOf(level string) Kind {
	switch level {
	case "d":
		return KindDirect
	case "p":
		return KindPresence
	case "s":
		return KindStatus
	}
	return KindUnknown
}
