//go:build !linux

package store

// Sync makes the content durable.
func (f machineFile) Sync() error { return f.File.Sync() }
