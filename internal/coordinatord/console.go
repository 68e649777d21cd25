package coordinatord

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/replica"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/console"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/logging"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// startConsole serves the web console until ctx ends. It returns nil if the console is disabled, or if its address is
// not available: training does not depend on the console, so this is only a condition.
func startConsole(ctx context.Context, s *coordinatorsettings.ConfigFile, o *Options) (*console.Server, error) {
	if s.Console.Listen == "" {
		return nil, nil
	}
	secured, err := s.Console.TLS()
	if err != nil {
		return nil, err
	}
	key, err := s.CoordinatorPrivateKey()
	if err != nil {
		return nil, err
	}
	sessions, err := hkdf.Key(sha256.New, key.Seed(), nil, "fedmesh console session", sha256.Size)
	if err != nil {
		return nil, err
	}
	server, err := console.Start(ctx, console.Config{Program: "coordinator",
		Page: console.CoordinatorPage(), Listen: s.Console.Listen, TLS: secured,
		Tokens: api.TokenFile(s.Console.TokensFile), Control: s.Console.Control, SessionKey: sessions, Now: time.Now,
		Log: o.Logger})
	if err != nil {
		o.Logger.Error("cannot serve the console", "err", err)
		o.Board.RaiseCondition(status.Condition{Name: "console",
			Problem: fmt.Sprintf("the web console is not available: %v", err),
			Remedy: "set console.listen to a free address, or to \"\" to disable the console, and restart the " +
				"coordinator"})
		return nil, nil
	}
	return server, nil
}

// consoleContent returns what the console shows while this process leads.
func (f *Federation) consoleContent(routes []api.Route) console.Content {
	ids := cachedAgentIDs{}
	enrolled := func() ([]wire.AgentID, error) { return ids.read(f.settings()) }
	tables := []console.Table{f.statusTracker.StatusTable(), f.statusTracker.DevicesTable(enrolled)}
	if f.o.RecentRecords != nil {
		tables = append(tables, logTable(f.o.RecentRecords))
	}
	return console.Content{Routes: routes, Auditor: f.audit, Tables: tables}
}

// logTable returns the newest log records as a table, by their numbers.
func logTable(recent *logging.RecentRecords) console.Table {
	return console.Table{Name: "log", Rows: func(yield func(string, any)) error {
		for _, r := range recent.Records(0) {
			yield(strconv.FormatUint(r.Number, 10), r)
		}
		return nil
	}}
}

// cachedAgentIDs reads the ids in the list of agents, and reads them again only if the file has changed.
type cachedAgentIDs struct {
	path       string
	modifiedAt time.Time
	size       int64
	ids        []wire.AgentID
}

func (c *cachedAgentIDs) read(s *coordinatorsettings.ConfigFile) ([]wire.AgentID, error) {
	path := s.Identity.AgentListFile
	info, err := os.Stat(path)
	if err == nil && path == c.path && info.ModTime().Equal(c.modifiedAt) && info.Size() == c.size {
		return c.ids, nil
	}
	ids, listErr := s.AgentIDs()
	if err == nil && listErr == nil {
		*c = cachedAgentIDs{path, info.ModTime(), info.Size(), ids}
	}
	return ids, listErr
}

// standbyConsole makes the console of a replica that does not lead name the leader.
type standbyConsole struct {
	server       *console.Server // nil if the console is disabled
	urlByReplica map[string]string
}

// Observe implements observe.Observer.
func (c standbyConsole) Observe(e observe.Event) {
	standby, ok := e.(replica.StandingBy)
	if !ok || c.server == nil {
		return
	}
	a := &console.Absence{Reason: "this coordinator is on standby, and the leader is unknown: the state store does " +
		"not reply, or an election is in progress"}
	if standby.Leader != "" {
		a.Reason = fmt.Sprintf("this coordinator is on standby; the leader is %s", standby.Leader)
		a.URL = c.urlByReplica[standby.Leader]
		if a.URL == "" {
			a.Reason += ". To follow the leader from here, set console.urls"
		}
	}
	c.server.SetContent(console.Content{Absence: a})
}
