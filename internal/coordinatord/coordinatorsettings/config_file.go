package coordinatorsettings

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// ConfigFile is the content of the coordinator's configuration file, coordinator.yaml.
type ConfigFile struct {
	Federation  string           `yaml:"federation"`
	StateDir    string           `yaml:"state_dir"`
	Broker      settings.Broker  `yaml:"broker"`
	Identity    IdentityFiles    `yaml:"identity"`
	Task        settings.Task    `yaml:"task"`
	Round       round.Config     `yaml:"round"`
	Mesh        Mesh             `yaml:"mesh"`     // graph of mixing agents, if round.algorithm is feddec
	HeldOutData *data.Config     `yaml:"held_out"` // data for scoring each model; optional
	Rollout     rollout.Config   `yaml:"predict"`  // how new models are released for predictions
	Policy      Policy           `yaml:"policy"`
	Metrics     settings.Metrics `yaml:"metrics"`
	Console     Console          `yaml:"console"`
	History     HistoryExport    `yaml:"history"`
	Enrolment   Enrolment        `yaml:"enrol"`
	Cluster     Cluster          `yaml:"cluster"`
	Log         settings.Log     `yaml:"log"`
}

// IdentityFiles contains the paths of the coordinator's private key and of the list of agents.
type IdentityFiles struct {
	KeyFile       string `yaml:"key_file"`
	AgentListFile string `yaml:"agents_file"`
}

// Policy limits the updates that the coordinator accepts and the models that it keeps.
type Policy struct {
	MaxUpdateNorm          float64       `yaml:"max_norm"`     // maximum norm of an update; 0 means no limit
	MaxBufferedUpdateBytes spec.ByteSize `yaml:"max_buffered"` // maximum number of bytes of updates being received
	KeptModelsPerRun       int           `yaml:"keep_models"`  // number of models on disk per run; 0 means all
	// number of hours for which the last model is kept as well
	KeptHourlyModels int `yaml:"keep_hourly"`
	// number of earlier runs whose models are kept; 0 means all
	KeptEarlierRuns int `yaml:"keep_runs"`
}

// Mesh configures which agents exchange parameters with each other for mixing.
type Mesh struct {
	Edges      spec.EdgeSource     `yaml:"edges"`
	EdgeRadius float64             `yaml:"radius"`
	EdgeFile   string              `yaml:"file"` // file that lists the edges as pairs of agent ids
	Weights    spec.EdgeWeightRule `yaml:"weights"`
}

// Default returns the default configuration of the coordinator.
func Default() ConfigFile {
	return ConfigFile{
		StateDir: "/var/lib/coordinator", Broker: settings.DefaultBroker(), Task: settings.DefaultTask(),
		Round:   round.DefaultConfig(),
		Rollout: rollout.DefaultConfig(),
		Mesh:    Mesh{Edges: spec.EdgesRadius, Weights: spec.EdgeWeightsMetropolis},
		Identity: IdentityFiles{KeyFile: "/etc/coordinator/coordinator.key",
			AgentListFile: "/etc/coordinator/agents.keys"},
		Policy: Policy{MaxBufferedUpdateBytes: 256 << 20, KeptModelsPerRun: 20, KeptHourlyModels: 24,
			KeptEarlierRuns: 5},
		Enrolment: Enrolment{CertificateLife: defaultLife},
		Cluster:   Cluster{StateCopies: 3},
		Console:   Console{Listen: "127.0.0.1:9466"},
		Metrics:   settings.Metrics{Listen: "127.0.0.1:9464"}, Log: settings.Log{Level: "info", Format: "text"},
	}
}

// Validate reports every problem by key.
func (s *ConfigFile) Validate() error {
	var c settings.SettingsChecker
	c.AddError("federation", wire.FederationName(s.Federation).Validate())
	c.Require(s.StateDir != "", "state_dir", "must not be empty: set it to a folder that persists across restarts")
	c.CheckBroker(&s.Broker, s.Federation)
	_, err := s.CoordinatorPrivateKey()
	c.AddError("identity.key_file", err)
	agents, err := s.CountAgents()
	c.AddError("identity.agents_file", err)
	c.Require(err != nil || agents > 0 || s.Enrolment.IsEnabled(), "identity.agents_file", "%s contains no agents",
		s.Identity.AgentListFile)
	if s.Enrolment.IsEnabled() {
		agents = 0 // the number of agents is unknown, because more devices may join
	}
	c.Require(agents == 0 || s.Round.Gather.MinAgents <= agents, "round.gather.minimum",
		"must be at most the number of agents in %s (%d), but is %d; otherwise no round could begin",
		s.Identity.AgentListFile,
		agents, s.Round.Gather.MinAgents)
	t := s.Task.ToWireTask(s.Round.Algorithm == spec.FedDec)
	s.Round.CheckConsistency(&c.ProblemList, &t)
	s.Task.Check(&c.ProblemList, s.Round.Algorithm == spec.FedDec)
	if s.Round.Algorithm == spec.FedDec {
		checkMesh(&c, &s.Mesh)
	}
	c.AddSectionErrors("round", s.Round.Validate())
	s.checkStopTargets(&c.ProblemList)
	s.checkSchedule(&c.ProblemList, agents)
	c.AddSectionErrors("predict", s.Rollout.Validate())
	s.checkPersonalModel(&c.ProblemList)
	s.checkExternalModel(&c.ProblemList)
	if s.HeldOutData != nil && !s.Task.HasExternalModel() {
		before := c.ProblemCount()
		sources.CheckConfig(s.HeldOutData, &c.ProblemList, "held_out")
		c.Require(cmp.Or(s.HeldOutData.Source, data.SourceCSV) == data.SourceCSV, "held_out.source",
			"must be csv, but is %s: held-out rows are read once, at the start of a run", s.HeldOutData.Source)
		if c.ProblemCount() == before {
			source, err := sources.Open(s.HeldOutData)
			if err == nil {
				_, err = data.LoadRows(source, s.Task.RowQuery())
				err = errors.Join(err, source.Close())
			}
			c.AddError("held_out.csv", err)
		}
	}
	c.Require(s.Policy.MaxUpdateNorm >= 0, "policy.max_norm", "must not be negative, but is %v", s.Policy.MaxUpdateNorm)
	c.Require(s.Policy.MaxBufferedUpdateBytes >= 0, "policy.max_buffered", "must not be negative, but is %s",
		s.Policy.MaxBufferedUpdateBytes)
	c.Require(s.Policy.KeptModelsPerRun == 0 || s.Policy.KeptModelsPerRun >= 2, "policy.keep_models",
		"must be 0 (all) or at least 2, but is %d", s.Policy.KeptModelsPerRun)
	c.Require(s.Policy.KeptHourlyModels >= 0, "policy.keep_hourly", "must be 0 (none) or more, but is %d",
		s.Policy.KeptHourlyModels)
	c.Require(s.Policy.KeptEarlierRuns >= 0, "policy.keep_runs", "must be 0 (all) or more, but is %d",
		s.Policy.KeptEarlierRuns)
	c.CheckMetricsListen(s.Metrics.Listen)
	checkConsole(&c, &s.Console)
	s.History.MLflow.check(&c.ProblemList)
	checkEnrolment(&c, s)
	checkCluster(&c, &s.Cluster)
	c.CheckLog(&s.Log)
	return c.Err()
}

// checkPersonalModel reports settings that require a common model although agents have personal models.
func (s *ConfigFile) checkPersonalModel(c *spec.ProblemList) {
	own := &s.Task.Personal
	c.Require(!own.IsEnabled() || len(s.Task.RestandardizeAtVersions) == 0, "task.standardize_at",
		"cannot be combined with task.personal: personal models keep the previous standardisation")
	c.Require(len(own.Layers) == 0 || s.HeldOutData == nil, "held_out",
		"cannot be combined with task.personal.layers: the coordinator does not have the complete model")
	c.Require(!s.Rollout.IsEnabled() || !own.IsEnabled() && s.Task.Finetune.Steps == 0, "predict.rollout",
		"cannot be combined with task.personal or task.finetune: each device predicts with its own model")
}

// checkExternalModel reports settings that require knowledge of an external model's computation.
func (s *ConfigFile) checkExternalModel(c *spec.ProblemList) {
	external := s.Task.HasExternalModel()
	const why = "cannot be combined with task.model.kind external: only the external program can evaluate the model"
	c.Require(!external || s.HeldOutData == nil, "held_out", why)
	c.Require(!external || !s.Rollout.IsEnabled(), "predict.rollout", why)
	c.Require(!external || len(s.Task.RestandardizeAtVersions) == 0, "task.standardize_at", why)
}

// checkStopTargets reports stop targets that no model of the task can reach.
func (s *ConfigFile) checkStopTargets(c *spec.ProblemList) {
	r, loss := &s.Round.Stop, s.Task.Model.EffectiveLossKind()
	c.Require(r.TargetR2 == 0 || loss.IsRegression(), "round.stop.r2",
		"is %v, but the model predicts classes (%s): use round.stop.accuracy instead, or set this key to 0", r.TargetR2,
		loss)
	c.Require(r.TargetR2 == 0 || s.Task.Model.Kind.HasTarget(), "round.stop.r2",
		"is %v, but a model of kind %s has no target column: use round.stop.risk instead, or set this key to 0",
		r.TargetR2,
		s.Task.Model.Kind)
	c.Require(r.TargetAccuracy == 0 || !loss.IsRegression(), "round.stop.accuracy",
		"is %v, but the model predicts numbers (%s): use round.stop.r2 instead, or set this key to 0", r.TargetAccuracy,
		loss)
	c.Require(r.TargetR2 == 0 && r.TargetAccuracy == 0 || s.HeldOutData != nil, "round.stop",
		"contains r2 or accuracy, which require held-out data: add the section held_out, or set r2 and accuracy to 0")
}

// checkSchedule reports an unknown time zone and a schedule that needs more agents than the federation has.
func (s *ConfigFile) checkSchedule(c *spec.ProblemList, agents int) {
	w := &s.Round.Schedule
	if _, err := time.LoadLocation(w.TimeZone); err != nil {
		c.Require(false, "round.schedule.zone", "%v: use a time zone name such as Asia/Shanghai, and install the "+
			"system's time zone data (tzdata)", err)
	}
	c.Require(agents == 0 || w.NewRows.MinAgents <= agents, "round.schedule.new_rows.agents",
		"must be at most the number of agents in %s (%d), but is %d; otherwise no round could begin",
		s.Identity.AgentListFile,
		agents,
		w.NewRows.MinAgents)
}

func checkMesh(c *settings.SettingsChecker, m *Mesh) {
	c.AddError("mesh.edges", m.Edges.Validate())
	c.Require((m.Edges == spec.EdgesRadius) == (m.EdgeRadius > 0), "mesh.radius",
		"must be positive if mesh.edges is radius, and 0 otherwise, but is %v", m.EdgeRadius)
	c.Require((m.Edges == spec.EdgesFile) == (m.EdgeFile != ""), "mesh.file",
		"must be set if mesh.edges is file, and empty otherwise, but is %q", m.EdgeFile)
	if m.EdgeFile != "" {
		_, err := os.Stat(m.EdgeFile)
		c.AddError("mesh.file", err)
	}
	c.AddError("mesh.weights", m.Weights.Validate())
}

// compiledAgentListPath returns the path of the compiled list of agents, which is used for look-ups.
func (s *ConfigFile) compiledAgentListPath() string { return filepath.Join(s.StateDir, "agents") }

// isAgentListNotYetCreated reports whether the list of agents does not exist yet because no device has joined. A list
// that has been deleted later is an error, since the broker's access rules would then exclude every device.
func (s *ConfigFile) isAgentListNotYetCreated() bool {
	_, listed := os.Lstat(s.Identity.AgentListFile)
	_, compiled := os.Lstat(s.compiledAgentListPath())
	return s.Enrolment.IsEnabled() && errors.Is(listed, fs.ErrNotExist) && errors.Is(compiled, fs.ErrNotExist)
}

// CountAgents returns the number of enrolled agents.
func (s *ConfigFile) CountAgents() (int, error) {
	if s.isAgentListNotYetCreated() {
		return 0, nil
	}
	return agentlist.Count(s.Identity.AgentListFile, s.compiledAgentListPath())
}

// AgentIDs returns the ids of the enrolled agents in ascending order.
func (s *ConfigFile) AgentIDs() ([]wire.AgentID, error) {
	if s.isAgentListNotYetCreated() {
		return nil, nil
	}
	return agentlist.IDs(s.Identity.AgentListFile)
}

// OpenAgentList opens the list of agents. The state folder must exist and be locked.
func (s *ConfigFile) OpenAgentList() (*enrolled.List, error) {
	if s.isAgentListNotYetCreated() {
		if err := agentlist.EditListFile(store.LocalDisk, s.Identity.AgentListFile, nil, "", nil); err != nil {
			return nil, err
		}
	}
	return agentlist.OpenCompiledList(s.Identity.AgentListFile, s.compiledAgentListPath(), time.Now())
}

// CoordinatorPrivateKey reads the coordinator's private key.
func (s *ConfigFile) CoordinatorPrivateKey() (ed25519.PrivateKey, error) {
	return keys.ReadSigningKey(settings.ResolveSecretFile(s.Identity.KeyFile))
}

// CoordinatorConfig converts the settings to the configuration of package coordinator. The caller sets the list of
// agents, the observer and the logger.
func (s *ConfigFile) CoordinatorConfig() (coordinator.Config, error) {
	key, err := s.CoordinatorPrivateKey()
	if err != nil {
		return coordinator.Config{}, err
	}
	topics, err := mqtt.NewTopics(s.Broker.Prefix, s.Federation)
	if err != nil {
		return coordinator.Config{}, &spec.FieldError{Key: "broker.prefix", Problem: err.Error()}
	}
	cfg := coordinator.Config{
		Federation: wire.FederationName(s.Federation), Key: key, Topics: topics, Round: s.Round,
		Task: s.Task.ToWireTask(s.Round.Algorithm == spec.FedDec), Standardize: s.Task.StartsWithStatistics(),
		RestandardizeVersions: s.Task.RestandardizeAtVersions, FeatureClipDeviations: s.Task.ClipStandardDeviations,
		InitialModelPath: s.Task.Model.InitialModelFile,
		MaxUpdateNorm:    s.Policy.MaxUpdateNorm, MaxBufferedUpdateBytes: int(min(s.Policy.MaxBufferedUpdateBytes,
			math.MaxInt)),
		KeepModels: s.Policy.KeptModelsPerRun, KeepHourlyModels: s.Policy.KeptHourlyModels,
		KeepRuns: s.Policy.KeptEarlierRuns, StateDir: filepath.Clean(s.StateDir),
	}
	if cfg.RootDocuments, err = s.RootDocuments(); err != nil {
		return cfg, err
	}
	if n := len(cfg.RootDocuments); n > 0 {
		if err := CheckKeyMayAnnounce(&cfg.RootDocuments[n-1], keys.Public(key)); err != nil {
			return cfg, &spec.FieldError{Key: "identity.key_file", Problem: err.Error()}
		}
	}
	cfg.Round.Rollout = s.Rollout
	if s.Round.Algorithm == spec.FedDec {
		cfg.Round.MixingClipBound, cfg.IssuesAttestations = s.Task.Mixing.ClipDistance,
			s.Mesh.Edges == spec.EdgesDiscovered
	}
	if cfg.Round.Schedule.Location, err = time.LoadLocation(s.Round.Schedule.TimeZone); err != nil {
		return cfg, &spec.FieldError{Key: "round.schedule.zone", Problem: err.Error()}
	}
	if s.HeldOutData != nil {
		held := *s.HeldOutData
		held.RowFileFolder = cfg.StateDir
		if cfg.HeldOutSource, err = sources.Open(&held); err != nil {
			return cfg, &spec.FieldError{Key: "held_out", Problem: err.Error()}
		}
	}
	return cfg, nil
}
