// Package publish maintains the coordinator's retained messages: the announcement, and the tasks and models that agents
// fetch.
package publish
