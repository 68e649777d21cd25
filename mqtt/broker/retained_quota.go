package broker

import "strings"

// messageBytes and levelBytes are the overhead in bytes of a retained message and of each level of its topic. Each is
// about the size of a node in mochi's index.
const messageBytes, levelBytes = 512, 256

// retainedQuota tracks the size of each user's retained messages. It is protected by the hook's retainedMutex. Messages
// loaded after a restart are not counted.
type retainedQuota struct {
	limitOf         func(user string) int // returns the limit of a user in bytes; nil = no limit
	usedBytesByUser map[string]int
	usageByTopic    map[string]retainedUsage
}

type retainedUsage struct {
	user  string
	bytes int
}

func newQuota(of func(user string) int) retainedQuota {
	return retainedQuota{limitOf: of, usedBytesByUser: make(map[string]int),
		usageByTopic: make(map[string]retainedUsage)}
}

// admit reports whether a user may retain a message in place of the topic's current retained message. If so, it adds
// the new message to the user's total. Deletions are always admitted.
func (q *retainedQuota) admit(user, topic string, payload int) bool {
	if q.limitOf == nil {
		return true
	}
	before := q.usageByTopic[topic]
	bytes, free := retainedCost(topic, payload), q.limitOf(user)-q.usedBytesByUser[user]
	if before.user == user {
		free += before.bytes
	}
	if payload > 0 && bytes > free {
		return false
	}
	q.forget(topic)
	if payload > 0 {
		q.usageByTopic[topic] = retainedUsage{user, bytes}
		q.usedBytesByUser[user] += bytes
	}
	return true
}

// forget subtracts the retained message of a topic from the total of the user who published it.
func (q *retainedQuota) forget(topic string) {
	before, ok := q.usageByTopic[topic]
	if !ok {
		return
	}
	delete(q.usageByTopic, topic)
	if q.usedBytesByUser[before.user] -= before.bytes; q.usedBytesByUser[before.user] == 0 {
		delete(q.usedBytesByUser, before.user)
	}
}

func retainedCost(topic string, payload int) int {
	return messageBytes + len(topic) + payload + levelBytes*(1+strings.Count(topic, "/"))
}
