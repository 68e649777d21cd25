package agentd

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/internal/agentd/agentstatus"
	"github.com/fedmesh/fedmesh/internal/console"
)

// devicePage is the page of the device for a browser on the device. It shows the status of the agents of all
// federations and permits no changes.
type devicePage struct {
	mu       sync.Mutex
	trackers []*agentstatus.StatusTracker
}

// serve serves the page at a loopback address until ctx ends. It does nothing if the address is empty.
func (p *devicePage) serve(ctx context.Context, listen string, log *slog.Logger) error {
	if listen == "" {
		return nil
	}
	server, err := console.Start(ctx, console.Config{Program: "agentd", Page: console.AgentPage(), Listen: listen,
		Now: time.Now, Log: log})
	if err != nil {
		return fmt.Errorf("console.listen: %w", err)
	}
	server.SetContent(console.Content{Tables: []console.Table{{Name: "status", Rows: p.statusRows}}})
	return nil
}

// add adds the status of the agent of a federation.
func (p *devicePage) add(t *agentstatus.StatusTracker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trackers = append(p.trackers, t)
}

func (p *devicePage) statusRows(yield func(key string, row any)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.trackers {
		yield(t.ConsoleRow())
	}
	return nil
}
