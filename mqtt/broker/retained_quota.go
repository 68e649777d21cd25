package broker

import "strings"

// messageBytes and levelBytes are what a retained message costs beside its
// topic and payload, and each level of its topic: about a node of mochi's index.
const messageBytes, levelBytes = 512, 256

// retainedQuota counts what each user has retained. It belongs to the hook's lock for
// retaining. Messages kept over a restart count for nobody.
type retainedQuota struct {
	limitOf         func(user string) int // bytes; nil for no bound
	usedBytesByUser map[string]int
	usageByTopic    map[string]retainedUsage // by topic
}

type retainedUsage struct {
	user  string
	bytes int
}

func newQuota(of func(user string) int) retainedQuota {
	return retainedQuota{limitOf: of, usedBytesByUser: make(map[string]int),
		usageByTopic: make(map[string]retainedUsage)}
}

// admit reports whether a user may retain a message in the place of what is
// retained under its topic, and then counts it. Deleting is always admitted.
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

// forget gives back what a topic's message cost.
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
