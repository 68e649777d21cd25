//go:build !windows

package service

import "context"

// Run runs work: only Windows' service manager wants to be spoken to.
func Run(ctx context.Context, _ string, work func(ctx context.Context) error) error { return work(ctx) }
