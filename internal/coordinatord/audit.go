package coordinatord

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/aggregation"
	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/duplicate"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// auditor writes the audit log. It records commands before they are executed, and events of devices that are kept out.
type auditor struct {
	log                       *audit.Log
	logger                    *slog.Logger
	dir                       string
	isWriteFailing            atomic.Bool // set after a failed write, so that it is reported once
	lastForeignAnnouncementAt time.Time   // time of the last entry about a foreign announcement
}

func openAudit(s *coordinatorsettings.ConfigFile, logger *slog.Logger) (*auditor, error) {
	key, err := s.CoordinatorPrivateKey()
	if err != nil {
		return nil, err
	}
	a := &auditor{logger: logger, dir: s.StateDir}
	a.log, err = audit.Open(store.LocalDisk, s.StateDir, wire.FederationName(s.Federation), key, time.Now,
		a.logWriteFailure)
	return a, err
}

func (a *auditor) logWriteFailure(err error) {
	if !a.isWriteFailing.Swap(true) {
		a.logger.Error("cannot write the audit log; entries are kept in memory", "err", err)
	}
}

func (a *auditor) close() {
	if err := a.log.Close(); err != nil {
		a.logger.Error("cannot close the audit log", "err", err)
	}
}

// BeforeRequest implements api.RequestAuditor. A command is rejected if it cannot be recorded.
func (a *auditor) BeforeRequest(who string, r *http.Request) error {
	err := a.log.RecordEntry(audit.Entry{Event: audit.Command, Actor: who, Subject: r.Method + " " + r.URL.Path})
	if err != nil {
		return fmt.Errorf("command not executed because it cannot be recorded in the audit log: %w", err)
	}
	return nil
}

// AfterRequest implements api.RequestAuditor.
func (a *auditor) AfterRequest(who string, r *http.Request, err error) {
	from := r.RemoteAddr
	if from == "" || from == "@" {
		from = api.SocketPath(a.dir)
	}
	about := []any{"request", r.Method + " " + r.URL.Path, "who", cmp.Or(who, "unknown"), "from", from}
	if err == nil {
		a.logger.Info("command executed", about...)
		return
	}
	a.logger.Warn("command failed", append(about, "err", err)...)
	if who != "" { // entries for unauthenticated requests could fill the disk
		a.log.RecordEntryLater(audit.Entry{Event: audit.Refused, Actor: who,
			Subject: r.Method + " " + r.URL.Path + ": " +
				err.Error()})
	}
}

// auditRoute returns the route that lists the newest entries of the audit log.
func (f *Federation) auditRoute() api.Route {
	return api.GetRoute("/v1/audit", "Return the newest entries of the audit log, newest first.",
		func(r *http.Request) ([]audit.Entry, error) {
			count := 200
			if s := r.FormValue("count"); s != "" {
				var err error
				if count, err = strconv.Atoi(s); err != nil || count < 1 || count > 10_000 {
					return nil, api.BadRequest("count must be between 1 and 10000, but is %q", s)
				}
			}
			return audit.NewestEntries(store.LocalDisk, f.stateDir, count)
		}, api.QueryParameter{Name: "count", About: "number of entries, from 1 to 10000; default: 200"}).WithName()
}

// recordEnrolment records an enrolment event. It returns after the entry is on disk, so the device receives no reply
// before the entry is safe.
func (a *auditor) recordEnrolment(event observe.Event) {
	e := audit.Entry{}
	switch f := event.(type) {
	case enrol.DeviceJoined:
		e.Event, e.Agent = audit.Joined, f.Agent
		if f.ReplacedAgent != "" {
			e.Subject = "replaces " + string(f.ReplacedAgent)
		}
	case enrol.CredentialsRenewed:
		e.Event, e.Agent = audit.Renewed, f.Agent
		if f.KeyChanged {
			e.Subject = "new key"
		}
		if !f.CertificateExpiresAt.IsZero() {
			e.Subject = strings.TrimPrefix(e.Subject+", certificate valid until "+
				f.CertificateExpiresAt.UTC().Format(time.RFC3339), ", ")
		}
	case enrol.RenewalRefused:
		e.Event, e.Agent, e.Subject = audit.Refused, f.Agent, "request for a new key or certificate: "+f.Reason.String()
	case enrol.OpenJoinChanged:
		e.Event = audit.Opened
		if !f.OpenUntil.IsZero() {
			e.Subject = f.OpenUntil.UTC().Format(time.RFC3339)
		}
	default: // this includes enrol.JoinRefused, which is only logged: strangers could fill the disk
		return
	}
	if err := a.log.RecordEntry(e); err != nil {
		a.logWriteFailure(err)
		a.log.RecordEntryLater(e)
	}
}

// Observe implements observe.Observer. It records devices that were kept out or readmitted. Refusals of unknown devices
// are not recorded, because they could fill the disk.
func (a *auditor) Observe(event observe.Event) {
	switch f := event.(type) {
	case round.AgentSidelined:
		a.log.RecordEntryLater(audit.Entry{Event: audit.Sidelined, Agent: f.Agent,
			Subject: fmt.Sprintf("excluded in round %d (%s) until round %d", f.Round, f.Reason, f.LastSidelinedRound)})
	case round.AgentReadmitted:
		a.log.RecordEntryLater(audit.Entry{Event: audit.Released, Agent: f.Agent, Subject: fmt.Sprintf("round %d",
			f.Round)})
	case round.UpdateRefused:
		a.log.RecordEntryLater(audit.Entry{Event: audit.Refused, Agent: f.Agent,
			Subject: fmt.Sprintf("round %d: %v", f.Round, f.Reason)})
	case coordinator.RoundMachineStarted:
		if f.EpochRaised {
			a.log.RecordEntryLater(audit.Entry{Event: audit.Epoch, Subject: fmt.Sprint(f.Epoch)})
		}
	case devices.CloneSeen:
		a.log.RecordEntryLater(audit.Entry{Event: audit.Clone, Agent: f.Agent})
	case duplicate.ForeignAnnouncementSeen:
		// Write at most one entry per hour, because a stranger could replay an old announcement many times.
		if now := time.Now(); now.Sub(a.lastForeignAnnouncementAt) > time.Hour {
			a.lastForeignAnnouncementAt = now
			a.log.RecordEntryLater(audit.Entry{Event: audit.Foreign, Subject: fmt.Sprint(f.Foreign)})
		}
	case aggregation.UpdateLeftOut:
		a.log.RecordEntryLater(audit.Entry{Event: audit.LeftOut, Agent: f.Agent,
			Subject: fmt.Sprintf("round %d: %s", f.Round, f.Reason)})
	case aggregation.ModelRejected:
		for _, agent := range f.SuspectAgents {
			a.log.RecordEntryLater(audit.Entry{Event: audit.LeftOut, Agent: agent,
				Subject: fmt.Sprintf("round %d: model %d was rejected", f.Round, f.Version)})
		}
	}
}
