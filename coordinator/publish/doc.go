// Package publish maintains what a coordinator has the broker retain: the announcement, and the tasks and models that
// it names and agents fetch.
package publish
