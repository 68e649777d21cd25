// Package agentstatus keeps the status page of an agent: its present work, the results of its last rounds, and its
// conditions, each with a remedy.
package agentstatus
