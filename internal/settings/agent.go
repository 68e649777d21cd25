package settings

import (
	"cmp"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// Agent is the content of agentd's configuration file, agentd.yaml.
type Agent struct {
	FederationSettings `yaml:",inline"`
	StateDir           string            `yaml:"state_dir"`
	NameServer         string            `yaml:"dns"` // address:port of a name server; empty for the system's
	Budget             TrafficBudget     `yaml:"budget"`
	Device             DeviceWorkRules   `yaml:"device"`
	Trainers           []ExternalTrainer `yaml:"trainers"`
	Metrics            AgentMetrics      `yaml:"metrics"`
	Console            AgentConsole      `yaml:"console"`
	Log                Log               `yaml:"log"`
	// Federations lists the federations of the device if there are several. The keys of FederationSettings are then
	// defaults for each federation.
	Federations []FederationMembership `yaml:"federations"`

	// LocalFederationName is the device's own name for the federation. LocalFederationName is set by
	// SettingsPerFederation. It is empty if the device belongs to only one federation.
	LocalFederationName string `yaml:"-"`
}

// FederationSettings are the settings that may differ between the federations of a device.
type FederationSettings struct {
	Federation string        `yaml:"federation"`
	ID         string        `yaml:"id"`
	Broker     Broker        `yaml:"broker"`
	Identity   AgentIdentity `yaml:"identity"`
	Data       data.Config   `yaml:"data"`
	Readings   Readings      `yaml:"readings"`
	D2D        *D2D          `yaml:"d2d"`
	Evaluation Evaluation    `yaml:"evaluation"`
	Predict    Prediction    `yaml:"predict"`
	Compute    Compute       `yaml:"compute"`
	Privacy    Privacy       `yaml:"privacy"`
	Limits     ModelLimits   `yaml:"limits"`
}

// AgentIdentity configures the agent's key and the trust in the coordinator.
type AgentIdentity struct {
	KeyFile string `yaml:"key_file"` // file with the agent's private key
	// root document (list of trusted keys) of the federation, which contains the coordinator's key
	RootFile       string `yaml:"root_file"`
	CoordinatorKey string `yaml:"coordinator_key"` // coordinator's public key in base64, if there is no root document
}

// D2D configures the device-to-device connection, over which the agent exchanges parameters with its neighbours
// (mixing). Without this section the agent does not mix.
type D2D struct {
	// UsesUplink is true if the traffic between neighbours uses the coordinator's broker. The default is false, because
	// the traffic is proportional to devices × steps × model size × neighbours.
	UsesUplink bool           `yaml:"uplink"`
	Broker     Broker         `yaml:"broker"` // broker of the local site; unused if UsesUplink is true
	Place      *AgentLocation `yaml:"place"`
	// NeighborCell is the group of devices in which the agent looks for at most MaxDegree neighbours.
	NeighborCell string `yaml:"cell"`
	MaxDegree    int    `yaml:"max_degree"` // maximum number of neighbours; 0 means DefaultMaxDegree
}

// DefaultMaxDegree is the default of d2d.max_degree.
const DefaultMaxDegree = 6

// AgentLocation is the agent's position. All agents of a federation use the same unit of length.
type AgentLocation struct {
	X float64 `yaml:"x"`
	Y float64 `yaml:"y"`
}

// SiteBroker returns the broker settings for the traffic between neighbours, with defaults filled in.
func (d *D2D) SiteBroker() Broker {
	b := d.Broker
	b.BrokerAccess = b.withSiteBrokerDefaults("d2d-password")
	return b
}

// withSiteBrokerDefaults fills in the defaults for a broker of the local site. The URL has no default. credential is
// the name of the systemd credential with the password. It must differ from the credential for the coordinator's
// broker.
func (b BrokerAccess) withSiteBrokerDefaults(credential string) BrokerAccess {
	b.systemdCredentialName = credential
	b.KeepAlive = cmp.Or(b.KeepAlive, DefaultBroker().KeepAlive)
	b.MinRate = cmp.Or(b.MinRate, DefaultBroker().MinRate)
	b.TLSMin = cmp.Or(b.TLSMin, DefaultBroker().TLSMin)
	return b
}

// WireLocation returns the location in the form that messages of the protocol use.
func (d *D2D) WireLocation() wire.AgentLocation {
	if d.Place == nil {
		return wire.AgentLocation{}
	}
	return wire.AgentLocation{IsKnown: true, X: d.Place.X, Y: d.Place.Y}
}

// Evaluation configures how the device evaluates the models that it trains.
type Evaluation struct {
	// HeldOutShare is the fraction of the rows that is held out for evaluation. The held-out rows are the newest rows.
	// Zero means that no rows are held out.
	HeldOutShare float64 `yaml:"held_out"`
}

// Prediction configures the models that the device keeps for predictions, and the published forecasts.
type Prediction struct {
	KeptModels              int           `yaml:"keep"`    // number of models to keep; 0 means that no models are kept
	MinModelRefreshInterval time.Duration `yaml:"refresh"` // minimum time between two changes to a new model
	// MaxRiskIncrease limits the risk (mean loss) of a new model on the held-out rows. The new model replaces the
	// current model only if the risk increases by at most this fraction.
	MaxRiskIncrease float64 `yaml:"margin"`
	// ModelHookCommand is the command, with its arguments, that runs after a change of the model in use.
	ModelHookCommand config.OneOrMore `yaml:"hook"`
	ModelHookTimeout time.Duration    `yaml:"hook_time"` // time limit for the hook command
	// ForecastTopic is the topic on the site's broker on which forecasts are published. If it is empty, the device
	// makes no forecasts.
	ForecastTopic    string        `yaml:"publish"`
	ForecastBroker   BrokerAccess  `yaml:"broker"`
	ForecastInterval time.Duration `yaml:"every"` // interval between two checks for new rows
	// AnnouncedSystem is the system to which the forecasts are announced. AnnouncedSystem is one of AnnounceSystems.
	AnnouncedSystem string `yaml:"announce"`
	// AnnouncePrefix replaces the first levels of the topics that the announced system uses. If it is empty, the
	// default of the system is used.
	AnnouncePrefix string `yaml:"announce_prefix"`
	// UsualResidualShare is the fraction of the device's residuals (prediction errors) that counts as normal. Larger
	// residuals are anomalies.
	UsualResidualShare float64 `yaml:"anomaly"`
}

// Systems to which forecasts can be announced.
const (
	AnnounceJSON          = "json" // plain JSON messages on the topic predict.publish, without any system
	AnnounceHomeAssistant = "homeassistant"
	AnnounceThinEdge      = "thin-edge"
	AnnounceSparkplug     = "sparkplug"
)

// AnnounceSystems lists the valid values of the key predict.announce.
var AnnounceSystems = []string{AnnounceJSON, AnnounceHomeAssistant, AnnounceThinEdge, AnnounceSparkplug}

// SiteBroker returns the broker settings for publishing forecasts, with defaults filled in.
func (p *Prediction) SiteBroker() Broker {
	return Broker{BrokerAccess: p.ForecastBroker.withSiteBrokerDefaults("predict-password")}
}

func (c *SettingsChecker) checkPrediction(p *Prediction, federation string) {
	c.Require(p.KeptModels >= 0 && p.KeptModels <= 1000, "predict.keep",
		"must be between 1 and 1000, or 0 to store no models, but is %d",
		p.KeptModels)
	c.Require(p.MinModelRefreshInterval >= 0, "predict.refresh", "must not be negative, but is %s",
		p.MinModelRefreshInterval)
	c.Require(p.MaxRiskIncrease >= 0 && p.MaxRiskIncrease <= 10, "predict.margin",
		"must be between 0 and 10, as a fraction of the risk, but is %v",
		p.MaxRiskIncrease)
	c.Require(len(p.ModelHookCommand) == 0 || p.KeptModels > 0, "predict.hook",
		"requires stored models, but predict.keep is 0: set predict.keep, or remove predict.hook")
	if len(p.ModelHookCommand) > 0 {
		_, err := exec.LookPath(p.ModelHookCommand[0])
		c.AddError("predict.hook", err)
	}
	c.Require(p.ForecastInterval >= time.Second && p.ForecastInterval <= 24*time.Hour, "predict.every",
		"must be between 1s and 24h, but is %s", p.ForecastInterval)
	c.Require(p.UsualResidualShare > 0 && p.UsualResidualShare < 1, "predict.anomaly",
		"must be above 0 and below 1, but is %v", p.UsualResidualShare)
	c.Require((p.ForecastTopic == "") == (len(p.ForecastBroker.URLs) == 0), "predict.publish",
		"must be set together with predict.broker.url, or not at all")
	if p.ForecastTopic != "" {
		c.Require(p.KeptModels > 0, "predict.publish", "requires stored models, but predict.keep is 0: set "+
			"predict.keep")
		c.Require(!strings.ContainsAny(p.ForecastTopic, "+#"), "predict.publish",
			"must be a single topic, without + and #, but is %q",
			p.ForecastTopic)
		c.AddError("predict.publish", mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, p.ForecastTopic))
		var of SettingsChecker
		site := p.SiteBroker()
		of.CheckBroker(&site, federation)
		c.AddSectionErrors("predict", of.Err())
	}
	c.checkAnnouncement(p)
	c.Require(p.ModelHookTimeout > 0 && p.ModelHookTimeout <= 10*time.Minute, "predict.hook_time",
		"must be above 0s and at most 10m, but is %s",
		p.ModelHookTimeout)
}

func (c *SettingsChecker) checkAnnouncement(p *Prediction) {
	c.Require(slices.Contains(AnnounceSystems, p.AnnouncedSystem), "predict.announce", "must be one of %s, but is %q",
		strings.Join(AnnounceSystems, ", "), p.AnnouncedSystem)
	isAnnounced := p.AnnouncedSystem != AnnounceJSON
	c.Require(p.ForecastTopic != "" || !isAnnounced, "predict.announce",
		"is set, but no forecasts are published: set predict.publish")
	if p.AnnouncePrefix == "" {
		return
	}
	c.Require(isAnnounced, "predict.announce_prefix", "is set, but predict.announce is %s: remove one of them",
		AnnounceJSON)
	c.Require(!strings.ContainsAny(p.AnnouncePrefix, "+#"), "predict.announce_prefix",
		"must not contain + and #, but is %q", p.AnnouncePrefix)
	c.Require(p.AnnouncedSystem != AnnounceSparkplug || !strings.Contains(p.AnnouncePrefix, "/"),
		"predict.announce_prefix", "must not contain / in a Sparkplug group, but is %q", p.AnnouncePrefix)
	c.AddError("predict.announce_prefix", mqtt.CheckSubscriptionFilter(mqtt.AtMostOnce, p.AnnouncePrefix))
}

// Compute configures the computation on the device.
type Compute struct {
	// DeclaredStepTime is the declared duration of a local step. Zero means that the agent measures the duration.
	DeclaredStepTime time.Duration `yaml:"step_time"`
	// MomentsMethod is the method that computes the column statistics for the common standardisation: robust or exact.
	MomentsMethod MomentsMethod `yaml:"moments"`
}

// MomentsMethod is a method to compute the statistics for the common standardisation.
type MomentsMethod string

// Methods for computing the column statistics.
const (
	MomentsRobust MomentsMethod = "robust" // outliers are replaced by the median of their column
	MomentsExact  MomentsMethod = "exact"
)

// Privacy limits the information that the device reveals about its data.
type Privacy struct {
	MinRowsToParticipate int `yaml:"min_rows"` // minimum number of rows with which the device participates
}

// ModelLimits limits the size of accepted models.
type ModelLimits struct {
	MaxModel spec.ByteSize `yaml:"max_model"`
}

// TrafficBudget limits the traffic between the device and the coordinator's broker.
type TrafficBudget struct {
	// BytesPerMonth is the maximum number of bytes per calendar month, for both directions together. Zero means no
	// limit.
	BytesPerMonth spec.ByteSize `yaml:"bytes_per_month"`
}

// AgentConsole configures the page of the device for a browser on the device.
type AgentConsole struct {
	Listen string `yaml:"listen"` // loopback address with port; empty disables the page
}

// AgentMetrics configures the publication of the device's metrics.
type AgentMetrics struct {
	Listen string `yaml:"listen"` // address of the metrics server as host:port; empty means no server
	// ReportEvery is the interval between two metrics reports to the coordinator. Zero means that no reports are sent.
	ReportEvery time.Duration `yaml:"report_every"`
	// AdvertisedAddress is the address at which Prometheus can reach the metrics server. AdvertisedAddress is empty if
	// Prometheus cannot reach the device.
	AdvertisedAddress string `yaml:"advertise"`
	// ShowsValues adds the newest input values, forecasts and residuals to the metrics that the server at Listen shows.
	// Metrics reports to the coordinator never contain these values.
	ShowsValues bool `yaml:"values"`
}

// DeviceWorkRules are the owner's rules for when the device may work.
type DeviceWorkRules struct {
	ProcSysRoot        string        `yaml:"root"`        // folder that contains Linux's proc and sys
	LoadPerCore        EaseStopBand  `yaml:"load"`        // limits for the 1-minute load average per CPU core
	Temperature        EaseStopBand  `yaml:"temperature"` // limits for the temperature in °C
	Battery            EaseStopBand  `yaml:"battery"`     // limits for the charge in percent, while discharging
	RequiresMainsPower bool          `yaml:"mains"`       // work only on mains power
	MinAvailableMemory spec.ByteSize `yaml:"memory"`      // minimum available memory; 0 means no rule
	WorkTimeWindows    []string      `yaml:"windows"`     // time windows in which the device may work, in local time
}

// EaseStopBand contains two thresholds for a measured quantity. Beyond EaseThreshold the agent takes fewer local steps.
// Beyond StopThreshold the agent declines rounds. Both thresholds are 0 if there is no rule.
type EaseStopBand struct {
	EaseThreshold float64 `yaml:"ease"`
	StopThreshold float64 `yaml:"stop"`
}

func (c *SettingsChecker) checkDeviceRules(d *DeviceWorkRules) {
	for _, b := range []struct {
		key     string
		band    EaseStopBand
		falling bool
		most    float64
	}{{"load", d.LoadPerCore, false, 1000}, {"temperature", d.Temperature, false, 200}, {"battery", d.Battery, true,
		100}} {
		key, low, high := "device."+b.key+".stop", b.band.EaseThreshold, b.band.StopThreshold
		if b.falling {
			low, high = high, low
		}
		switch {
		case b.band == EaseStopBand{}:
		case min(low, high) <= 0 || max(low, high) > b.most:
			c.Require(false, key, "ease and stop must be above 0 and at most %v, or both 0 to disable the rule, "+
				"but are %v and %v",
				b.most, b.band.EaseThreshold, b.band.StopThreshold)
		case b.falling:
			c.Require(low <= high, key, "must be at most ease (%v), but is %v, because the battery level falls while "+
				"the device works",
				b.band.EaseThreshold,
				b.band.StopThreshold)
		default:
			c.Require(low <= high, key, "must be at least ease (%v), but is %v",
				b.band.EaseThreshold, b.band.StopThreshold)
		}
	}
	c.Require(d.ProcSysRoot != "", "device.root", "must not be empty: set it to the folder that contains proc and "+
		"sys, such as /")
	c.Require(d.MinAvailableMemory >= 0, "device.memory", "must not be negative, but is %s", d.MinAvailableMemory)
	_, err := spec.ParseTimeWindows(d.WorkTimeWindows)
	c.AddError("device.windows", err)
}

// minMonthlyBudget is the minimum traffic budget in bytes. It is enough for the pings, hello messages and small rounds
// of one month.
const minMonthlyBudget = 20_000_000

// DefaultAgent returns the default configuration of agentd.
func DefaultAgent() Agent {
	return Agent{
		FederationSettings: FederationSettings{
			Broker: DefaultBroker(), Privacy: Privacy{MinRowsToParticipate: 10},
			Limits:  ModelLimits{MaxModel: 64 << 20},
			Compute: Compute{MomentsMethod: MomentsRobust},
			Data:    data.Config{Source: data.SourceCSV}, Readings: Readings{Retention: Retention{Bytes: 64_000_000}},
			Identity: AgentIdentity{KeyFile: "/etc/agentd/agent.key"},
			Predict: Prediction{MinModelRefreshInterval: time.Minute, MaxRiskIncrease: 0.05,
				ModelHookTimeout: 10 * time.Second,
				ForecastInterval: time.Minute, AnnouncedSystem: AnnounceJSON, UsualResidualShare: 0.99},
		},
		StateDir: "/var/lib/agentd", Device: DeviceWorkRules{ProcSysRoot: "/"},
		Metrics: AgentMetrics{Listen: "127.0.0.1:9465", ReportEvery: 5 * time.Minute},
		Log:     Log{Level: "info", Format: "text"},
	}
}

// Validate reports every problem in the settings, each with its configuration key.
func (a *Agent) Validate() error {
	var c SettingsChecker
	c.Require(a.StateDir != "", "state_dir", "must not be empty: set it to a folder that persists across restarts")
	if a.NameServer != "" {
		_, err := netip.ParseAddrPort(a.NameServer)
		c.Require(err == nil, "dns", "must be the address and port of a name server, such as 192.0.2.53:53, but is %q",
			a.NameServer)
	}
	c.checkFederations(a)
	c.checkExternalTrainers(a.Trainers)
	a.eachFederation(func(section string, m *Agent) { c.AddSectionErrors(section, m.validateForFederation()) })
	c.Require(a.Budget.BytesPerMonth == 0 || a.Budget.BytesPerMonth >= minMonthlyBudget, "budget.bytes_per_month",
		"must be 0 (no limit) or at least 20MB, but is %s: an idle connection already uses about 10MB a month",
		a.Budget.BytesPerMonth)
	c.CheckMetricsListen(a.Metrics.Listen)
	if a.Console.Listen != "" {
		host, _, err := net.SplitHostPort(a.Console.Listen)
		c.AddError("console.listen", err)
		c.Require(err != nil || host == "localhost" || net.ParseIP(host).IsLoopback(), "console.listen",
			"must be a loopback address, such as 127.0.0.1:9467, but is %s, because the page requires no login",
			a.Console.Listen)
	}
	every := a.Metrics.ReportEvery
	c.Require(every == 0 || every >= time.Second && every <= 24*time.Hour && every%time.Second == 0,
		"metrics.report_every",
		"must be 0s (never), or whole seconds up to 24h, but is %s", every)
	if a.Metrics.AdvertisedAddress != "" {
		host, _, err := net.SplitHostPort(a.Metrics.AdvertisedAddress)
		c.Require(err == nil && host != "" && len(a.Metrics.AdvertisedAddress) <= wire.MaxName, "metrics.advertise",
			"must be host:port, such as 192.0.2.7:9465, or empty, but is %q", a.Metrics.AdvertisedAddress)
	}
	c.checkDeviceRules(&a.Device)
	c.CheckLog(&a.Log)
	return c.Err()
}

// validateForFederation reports every problem in the settings of one federation, each with its configuration key.
func (a *Agent) validateForFederation() error {
	m := &a.FederationSettings
	var c SettingsChecker
	c.AddError("federation", wire.FederationName(m.Federation).Validate())
	c.AddError("id", wire.AgentID(m.ID).ValidateNonCoordinator())
	c.CheckBroker(&m.Broker, m.Federation)
	_, err := keys.ReadSigningKey(ResolveSecretFile(m.Identity.KeyFile))
	c.AddError("identity.key_file", err)
	_, _, err = m.CoordinatorKeyOrRoot()
	c.AddSectionErrors("", err)
	if m.D2D != nil {
		c.checkD2D(m.D2D, m.Federation, m.Broker.URLs)
	}
	c.checkData(a)
	c.checkReadings(&m.Readings, m.Federation, m.Data.Source == data.SourceMQTT)
	c.checkPrediction(&m.Predict, m.Federation)
	spec.RequireOneOf(&c.ProblemList, "compute.moments", m.Compute.MomentsMethod, MomentsRobust, MomentsExact)
	c.Require(m.Compute.DeclaredStepTime >= 0, "compute.step_time", "must not be negative, but is %s",
		m.Compute.DeclaredStepTime)
	c.Require(m.Limits.MaxModel > 0 && m.Limits.MaxModel <= wire.MaxBlobBytes, "limits.max_model",
		"must be between 1 and %d bytes, but is %s", wire.MaxBlobBytes, m.Limits.MaxModel)
	return c.Err()
}

// ValidateDataSettings reports every problem in the data sections, each with its configuration key.
func (a *Agent) ValidateDataSettings() error {
	var c SettingsChecker
	a.eachFederation(func(section string, m *Agent) {
		var of SettingsChecker
		of.checkData(m)
		c.AddSectionErrors(section, of.Err())
	})
	return c.Err()
}

// CheckDataFileHeaders reports columns that are missing in the headers of the data files, each with its configuration
// key.
func (a *Agent) CheckDataFileHeaders() error {
	var c SettingsChecker
	a.eachFederation(func(section string, m *Agent) {
		var of SettingsChecker
		if !m.HasOnlyExternalTrainers() {
			sources.CheckConfigAgainstFile(&m.Data, &of.ProblemList, "data")
		}
		c.AddSectionErrors(section, of.Err())
	})
	return c.Err()
}

func (c *SettingsChecker) checkData(a *Agent) {
	if !a.HasOnlyExternalTrainers() {
		sources.CheckConfig(&a.Data, &c.ProblemList, "data")
	}
	c.Require(a.Evaluation.HeldOutShare >= 0 && a.Evaluation.HeldOutShare < 1, "evaluation.held_out",
		"must be at least 0 (none) and below 1, but is %v", a.Evaluation.HeldOutShare)
	c.Require(a.Privacy.MinRowsToParticipate >= 1, "privacy.min_rows", "must be at least 1, but is %d",
		a.Privacy.MinRowsToParticipate)
}

func (c *SettingsChecker) checkD2D(d *D2D, federation string, uplink []string) {
	c.Require(d.UsesUplink == (len(d.Broker.URLs) == 0), "d2d.broker.url",
		"traffic between neighbours requires a broker: set either d2d.broker.url, or d2d.uplink: true to use the "+
			"coordinator's broker")
	if d.NeighborCell != "" {
		c.AddError("d2d.cell", mqtt.CheckCellName(d.NeighborCell))
	}
	c.Require(d.MaxDegree >= 0 && d.MaxDegree <= wire.MaxNeighbors, "d2d.max_degree",
		"must be between 1 and %d, or 0 for the default of %d, but is %d",
		wire.MaxNeighbors, DefaultMaxDegree, d.MaxDegree)
	c.Require(d.MaxDegree == 0 || d.NeighborCell != "", "d2d.max_degree",
		"requires d2d.cell: set d2d.cell, or remove d2d.max_degree")
	if len(d.Broker.URLs) == 0 {
		return
	}
	c.Require(!slices.ContainsFunc(d.Broker.URLs, func(u string) bool { return slices.Contains(uplink, u) }),
		"d2d.broker.url", "is also the coordinator's broker: to use that broker for the traffic between neighbours, "+
			"set d2d.uplink: true instead")
	var of SettingsChecker
	site := d.SiteBroker()
	of.CheckBroker(&site, federation)
	c.AddSectionErrors("d2d", of.Err())
}
