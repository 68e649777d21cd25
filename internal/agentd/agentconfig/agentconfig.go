// Package agentconfig converts the settings from agentd.yaml into the configuration structs of the agent's packages.
package agentconfig

import (
	"cmp"
	"crypto/ed25519"
	"crypto/tls"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/external"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// AgentConfigForFederation returns the agent configuration for one federation of the device (see
// [settings.Agent.SettingsPerFederation]). The caller sets the fields that depend on the process: observer, logger,
// random source and boot epoch.
func AgentConfigForFederation(a *settings.Agent) (agent.Config, error) {
	key, err := keys.ReadSigningKey(settings.ResolveSecretFile(a.Identity.KeyFile))
	if err != nil {
		return agent.Config{}, err
	}
	coordinator, root, err := a.CoordinatorKeyOrRoot()
	if err != nil {
		return agent.Config{}, err
	}
	topics, err := mqtt.NewTopics(a.Broker.Prefix, a.Federation)
	if err != nil {
		return agent.Config{}, &spec.FieldError{Key: "broker.prefix", Problem: err.Error()}
	}
	rows := a.Data
	rows.RowFileFolder = a.FederationFolder()
	var source data.Source = external.NoRowsSource{}
	if !a.HasOnlyExternalTrainers() {
		if source, err = sources.Open(&rows); err != nil {
			return agent.Config{}, &spec.FieldError{Key: "data", Problem: err.Error()}
		}
	}
	var neighbors *mesh.Config
	if a.D2D != nil {
		neighbors = &mesh.Config{Location: a.D2D.WireLocation(), Cell: a.D2D.NeighborCell,
			MaxNeighbors: cmp.Or(a.D2D.MaxDegree, settings.DefaultMaxDegree)}
	}
	var predictions *predict.Config
	if p := a.Predict; p.KeptModels > 0 {
		predictions = &predict.Config{MaxKeptModels: p.KeptModels, MinModelChangeInterval: p.MinModelRefreshInterval,
			MaxRiskIncrease:  p.MaxRiskIncrease,
			ForecastInterval: p.ForecastInterval, UsualResidualShare: p.UsualResidualShare,
			ShowsValues: a.Metrics.ShowsValues}
	}
	return agent.Config{
		Mesh: neighbors, Predict: predictions, Federation: wire.FederationName(a.Federation), ID: wire.AgentID(a.ID),
		Identity: identity.Config{Key: key, Coordinator: coordinator, Root: root,
			ReadConfiguredCertificate: a.Broker.Certificate},
		Topics: topics,
		TaskData: taskdata.Config{Source: source, HeldOutShare: a.Evaluation.HeldOutShare,
			MinRows: uint64(a.Privacy.MinRowsToParticipate), ShowsValues: a.Metrics.ShowsValues},
		StateDir: a.FederationFolder(), Training: training.Config{DeclaredStepTime: a.Compute.DeclaredStepTime},
		MaxBlobBytes:  int(a.Limits.MaxModel),
		MinUplinkRate: transfer.LinkRate(a.Broker.MinRate),
		Presence: presence.Config{MetricsReports: presence.MetricsReportConfig{ReportInterval: a.Metrics.ReportEvery,
			MetricsAddress: a.Metrics.AdvertisedAddress}},
	}, nil
}

// AcceptedCoordinatorKeys returns the coordinator keys that the device currently accepts.
func AcceptedCoordinatorKeys(a *settings.Agent) ([]ed25519.PublicKey, error) {
	key, root, err := a.CoordinatorKeyOrRoot()
	switch {
	case err != nil:
		return nil, err
	case root == nil:
		return []ed25519.PublicKey{key}, nil
	}
	return identity.LoadCoordinatorKeys(store.LocalDisk, a.FederationFolder(), root), nil
}

// UplinkBrokerSettings returns the settings of the coordinator's broker with the most recently renewed certificate. If
// this certificate cannot be read, the configured certificate is used.
func UplinkBrokerSettings(a *settings.Agent) *settings.Broker {
	return a.Broker.WithCertificateRenewal(func(configured tls.Certificate) tls.Certificate {
		renewed, _ := identity.LoadCertificate(store.LocalDisk, a.FederationFolder(), configured)
		return renewed
	})
}

// LocalTrainer returns the trainer for the built-in kinds of models.
func LocalTrainer(a *settings.Agent) training.LocalTrainer {
	return training.LocalTrainer{UsesRobustMoments: a.Compute.MomentsMethod == settings.MomentsRobust}
}

// ExternalTrainersByName returns the configuration of each external trainer, keyed by the name that a task uses to
// select the trainer.
func ExternalTrainersByName(a *settings.Agent) map[string]external.Config {
	all := map[string]external.Config{}
	for _, t := range a.Trainers {
		all[t.Name] = external.Config{SocketPath: t.Socket, Command: t.Command, Dir: cmp.Or(t.WorkDir, a.StateDir),
			Env:            t.Env,
			MaxMemoryBytes: uint64(t.MemoryLimit), SilenceTimeout: cmp.Or(t.SilenceTimeout,
				settings.DefaultTrainerTimeout),
			AllowsNetwork: t.AllowsNetwork}
	}
	return all
}

// DeviceRules returns the owner's rules for when the device may work.
func DeviceRules(d *settings.DeviceWorkRules) (*device.OwnerRules, error) {
	windows, err := spec.ParseTimeWindows(d.WorkTimeWindows)
	return &device.OwnerRules{
		Load: device.EaseStopBand(d.LoadPerCore), Temperature: device.EaseStopBand(d.Temperature),
		Battery:            device.EaseStopBand(d.Battery),
		RequiresMainsPower: d.RequiresMainsPower, MinFreeMemoryBytes: uint64(d.MinAvailableMemory),
		AllowedTimeWindows: windows,
	}, err
}
