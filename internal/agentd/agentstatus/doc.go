// Package agentstatus maintains the status page of an agent: its current work, the results of its recent rounds, and
// its conditions, each with a remedy.
package agentstatus
