package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/fedmesh/fedmesh/internal/service/notify"
)

// SystemdSupervisor connects a daemon to systemd. It reports readiness, status and liveness, and reloads the
// configuration on SIGHUP.
type SystemdSupervisor struct {
	Status *StatusLine

	log             *slog.Logger
	notifySystemd   func(assignments ...string) error
	watchdogTimeout time.Duration // time after which systemd ends an unresponsive process; 0 means never
	reloadSignals   chan os.Signal
	goroutines      sync.WaitGroup
}

// NewSystemdSupervisor returns a supervisor. From then on, SIGHUP no longer ends the process. If the process does not
// run under systemd, reports to systemd are discarded.
func NewSystemdSupervisor(log *slog.Logger) (*SystemdSupervisor, error) {
	socket, err := notify.Open(os.Getenv("NOTIFY_SOCKET"))
	if err != nil {
		return nil, err
	}
	watchdog, err := notify.WatchdogInterval(os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID"), os.Getpid())
	if err != nil {
		return nil, err
	}
	s := &SystemdSupervisor{Status: NewStatusLine(), log: log, notifySystemd: socket.Send, watchdogTimeout: watchdog,
		reloadSignals: make(chan os.Signal, 1)}
	signal.Notify(s.reloadSignals, syscall.SIGHUP)
	return s, nil
}

// Worker is a part of the daemon with a liveness check. CheckAlive returns an error if the worker does not respond
// before ctx ends.
type Worker struct {
	Name       string
	CheckAlive func(ctx context.Context) error
}

// ReportReadyAndSupervise reports to systemd that the daemon is ready, then handles reloads and the watchdog in a
// goroutine until ctx ends.
func (s *SystemdSupervisor) ReportReadyAndSupervise(ctx context.Context, reload func(ctx context.Context),
	workers ...Worker) {
	s.sendToSystemd("READY=1", notify.StatusAssignment(s.Status.String()))
	s.goroutines.Go(func() { s.superviseUntilDone(ctx, reload, workers) })
}

// Wait waits until the goroutine that ReportReadyAndSupervise started has ended.
func (s *SystemdSupervisor) Wait() {
	signal.Stop(s.reloadSignals)
	s.goroutines.Wait()
}

func (s *SystemdSupervisor) superviseUntilDone(ctx context.Context, reload func(ctx context.Context),
	workers []Worker) {
	var checks <-chan time.Time // stays nil if systemd has not configured a watchdog
	if s.watchdogTimeout > 0 {
		ticker := time.NewTicker(s.watchdogTimeout / 3)
		defer ticker.Stop()
		checks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			s.sendToSystemd("STOPPING=1")
			return
		case <-checks:
			s.feedWatchdog(ctx, workers)
		case <-s.reloadSignals:
			s.sendToSystemd("RELOADING=1")
			bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
			reload(bounded)
			cancel()
			s.sendToSystemd("READY=1", notify.StatusAssignment(s.Status.String()))
		case <-s.Status.boardChanged:
			s.sendToSystemd(notify.StatusAssignment(s.Status.String()))
		}
	}
}

// feedWatchdog checks every worker and feeds systemd's watchdog only if all workers respond. If one worker hangs,
// systemd therefore ends the process.
func (s *SystemdSupervisor) feedWatchdog(ctx context.Context, workers []Worker) {
	ctx, cancel := context.WithTimeout(ctx, s.watchdogTimeout/3)
	defer cancel()
	for _, w := range workers {
		if err := w.CheckAlive(ctx); err != nil {
			s.log.Error(fmt.Sprintf("the %s is unresponsive; if this continues, the systemd watchdog kills the "+
				"process, and its stack traces appear in this log", w.Name), "err", err)
			return
		}
	}
	s.sendToSystemd("WATCHDOG=1")
}

// sendToSystemd sends assignments to systemd. An error is only logged.
func (s *SystemdSupervisor) sendToSystemd(assignments ...string) {
	if err := s.notifySystemd(assignments...); err != nil {
		s.log.Warn("cannot send the service status to systemd", "err", err)
	}
}
