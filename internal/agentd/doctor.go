package agentd

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/agentd/datacheck"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/doctor"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// DoctorTarget returns the broker, folders and data that the doctor examines for an agent.
func DoctorTarget(s *settings.Agent) (*doctor.Target, error) {
	cfg, err := agentconfig.AgentConfigForFederation(s)
	if err != nil {
		return nil, err
	}
	broker, err := daemon.DoctorBrokerTarget(agentconfig.UplinkBrokerSettings(s), cfg.Topics, cfg.ID)
	if err != nil {
		return nil, err
	}
	broker.PresenceTopic = cfg.Topics.Presence(cfg.ID)
	broker.SubscribedFilters = []string{cfg.Topics.Announcement(), cfg.Topics.CoordinatorToAgent(cfg.ID),
		broker.PresenceTopic}
	announced := &announcedTask{settings: s, err: errors.New("cannot connect to the broker")}
	t := &doctor.Target{
		// NeededFreeBytes is the space for the model, the update and the next version of each.
		Program: "agentd", Federation: s.LocalFederationName, StateDir: filepath.Clean(s.StateDir),
		NeededFreeBytes: 4 * int64(cfg.MaxBlobBytes), Broker: broker,
		FindAnnouncement: announced.findAnnouncement,
		CheckData: func(context.Context) []doctor.Finding {
			return checkDataAgainstTask(s, cfg.TaskData.Source,
				announced)
		},
	}
	if s.Data.Source == data.SourceMQTT {
		site := s.Readings.SiteBroker()
		own := cfg.Topics.ClientID(cfg.ID)
		o, _, err := site.SessionOptions(own + "-data")
		if err != nil {
			return nil, err
		}
		o.ClientID = own + "-check" // a different client id, because the agent may be running
		t.SiteBroker = &doctor.BrokerTarget{Options: o, SubscribedFilters: sources.TopicFilters(&s.Data)}
	}
	return t, nil
}

// announcedTask is the announced task found by the doctor at a broker.
type announcedTask struct {
	settings *settings.Agent
	task     *datacheck.TaskWithOrigin // nil if no task was found
	err      error                     // reason why no task was found
}

// findAnnouncement looks for the coordinator's announcement at the broker with the given URL.
func (a *announcedTask) findAnnouncement(ctx context.Context, url string) doctor.Finding {
	at := *a.settings
	at.Broker.URLs = config.OneOrMore{url}
	t, err := datacheck.FetchAnnouncedTask(ctx, &at)
	missing, rejected := (*datacheck.MissingTaskError)(nil), (*datacheck.AgentRejectedError)(nil)
	f := doctor.Finding{Subject: "coordinator"}
	switch {
	case err == nil && t.RejectionAdvice != "":
		a.task, a.err = t, nil
		f.State, f.Observation, f.Remedy = doctor.Bad,
			"the coordinator announces the task "+t.Name+" but ignores this device",
			t.RejectionAdvice
		return f
	case errors.As(err, &rejected):
		a.err = errors.New("the coordinator ignores this device")
		f.State, f.Observation, f.Remedy = doctor.Bad, a.err.Error(), rejected.Remedy
		return f
	case err == nil:
		a.task, a.err = t, nil
		f.State, f.Observation = doctor.Good, "the coordinator announces the task "+t.Name
		return f
	case errors.As(err, &missing) && missing.Reason == announcement.NotRetained:
		f.State, f.Remedy = doctor.Warn, missing.Remedy
	case errors.As(err, &missing):
		f.State, f.Remedy = doctor.Bad, missing.Remedy
	default:
		f.State = doctor.Warn
	}
	if f.Observation = err.Error(); a.task == nil {
		a.err = err
	}
	return f
}

// checkDataAgainstTask checks the data against the announced task.
func checkDataAgainstTask(s *settings.Agent, source data.Source, announced *announcedTask) []doctor.Finding {
	bad := func(err error) []doctor.Finding {
		return []doctor.Finding{{Subject: "data", State: doctor.Bad, Observation: err.Error(),
			Remedy: "correct the data section of the configuration"}}
	}
	if _, collects := source.(data.ReadingCollector); collects {
		if err := source.Probe(); err != nil {
			return bad(err)
		}
	}
	unknown := ""
	if announced.task == nil {
		unknown = announced.err.Error()
	}
	r, err := datacheck.Run(s, announced.task, unknown)
	if err != nil {
		return bad(err)
	}
	return r.DoctorFindings()
}
