package service

import (
	"context"
	"os"
	"sync/atomic"

	kardianos "github.com/kardianos/service"
)

// Run calls work. Meanwhile it handles requests of the Windows service manager. In an interactive session there are no
// such requests.
func Run(ctx context.Context, program string, work func(ctx context.Context) error) error {
	if kardianos.Interactive() {
		return work(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h := &hosted{work: func() error { return work(ctx) }, stop: stop, done: make(chan error, 1)}
	s, err := kardianos.New(h, &kardianos.Config{Name: program})
	if err != nil {
		return err
	}
	return s.Run()
}

// hosted implements kardianos.Interface for a function that runs as a Windows service.
type hosted struct {
	work     func() error
	stop     context.CancelFunc
	stopping atomic.Bool
	done     chan error
}

// Start implements kardianos.Interface.
func (h *hosted) Start(kardianos.Service) error {
	go func() {
		h.done <- h.work()
		if !h.stopping.Load() {
			os.Exit(1) // exit with a failure, so that the service manager restarts the service
		}
	}()
	return nil
}

// Stop implements kardianos.Interface.
func (h *hosted) Stop(kardianos.Service) error {
	h.stopping.Store(true)
	h.stop()
	return <-h.done
}
