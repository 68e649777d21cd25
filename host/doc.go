// Package host holds what the programs around the machines have in common: the one goroutine that owns a program's
// state, the jobs beside it, the order of events, and the seal on what it says.
package host
