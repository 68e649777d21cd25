// Package agentstatus keeps the status page of an agent: what it does now, what its last rounds gave, and which
// problems it has, each with a remedy.
package agentstatus
