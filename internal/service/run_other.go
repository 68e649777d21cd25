//go:build !windows

package service

import "context"

// Run runs work. Only the service manager of Windows needs more.
func Run(ctx context.Context, _ string, work func(ctx context.Context) error) error { return work(ctx) }
