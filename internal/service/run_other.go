//go:build !windows

package service

import "context"

// Run calls work. Only Windows services need to communicate with the service manager.
func Run(ctx context.Context, _ string, work func(ctx context.Context) error) error { return work(ctx) }
