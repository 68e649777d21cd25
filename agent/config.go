package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Config is the configuration of an agent.
type Config struct {
	Federation wire.FederationName
	ID         wire.AgentID
	Identity   identity.Config
	Presence   presence.Config
	Topics     mqtt.Topics
	// TaskData configures the source of the agent's training rows and the use of these rows.
	TaskData taskdata.Config
	// StateDir is the folder for state that survives a restart. It must exist and be used by this agent only.
	StateDir string
	// IsStateDirVolatile is true if StateDir does not survive a power cut. The agent reports this in its presence
	// message.
	IsStateDirVolatile bool
	// Disk is the disk that contains StateDir. The default is the local disk.
	Disk store.Disk
	// Runtime provides the clock and runs background jobs. The default uses real time.
	Runtime host.JobRuntime
	// SignatureScheme signs and verifies messages. The default is Ed25519.
	SignatureScheme wire.SignatureScheme
	// BootEpoch is a number that increases with each start of the agent (see [store.Disk.NextBootEpoch]).
	BootEpoch wire.Epoch
	// Training configures the trainer and its speed.
	Training training.Config
	// Predict configures predictions with trained models; nil means that the agent keeps no models for predictions.
	Predict *predict.Config
	// MaxBlobBytes is the maximum size of fetched models and tasks, in bytes.
	MaxBlobBytes int
	// MinUplinkRate is the minimum rate of the uplink, in bytes per second; 0 means no minimum.
	MinUplinkRate transfer.LinkRate
	// Budget limits the monthly uplink traffic; nil means no limit. The agent declines rounds whose traffic would
	// exceed the limit. All agents of a device share one budget.
	Budget *budget.UplinkBudget
	Now    func() time.Time // clock that determines the calendar month of Budget; default time.Now

	Observer observe.Observer
	Logger   *slog.Logger
	Rand     *rand.Rand // randomness for jitter and nonces, never for training
	// SelfTestTimeout is the time within which the broker must return a message that the agent sends to itself. The
	// test shows whether the largest messages arrive (see [mqtt.BrokerSelfTest]). The value 0 disables the test.
	SelfTestTimeout time.Duration

	// JudgeDevice applies the device owner's rules for training. Nil means no rules.
	JudgeDevice device.RuleJudge

	// Mesh configures the connection to the neighbours. Nil means that the agent does not mix parameters.
	Mesh *mesh.Config
}

func (c *Config) stateFolder() state.Folder {
	return state.Folder{Disk: c.Disk, Dir: c.StateDir, Volatile: c.IsStateDirVolatile, Observer: c.Observer}
}

func (c *Config) setDefaults() {
	if c.Disk.FS == nil {
		c.Disk = store.LocalDisk
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.SignatureScheme == nil {
		c.SignatureScheme = wire.Ed25519{}
	}
	c.Training.SetDefaults(c.Federation)
}

func (c *Config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, c.Federation.Validate(), c.ID.ValidateNonCoordinator(), c.Identity.Validate(),
		c.TaskData.Validate())
	need(c.StateDir != "", "the state folder is not set")
	need(c.BootEpoch > 0, "the boot epoch is 0, but must be at least 1")
	need(c.MaxBlobBytes > 0, "the maximum size of a model or task is 0, but must be at least 1 byte")
	errs = append(errs, c.Predict.Validate())
	need(c.Budget == nil || c.Budget.MonthlyBytes > 0 && c.Budget.Meter != nil, "the traffic budget requires a "+
		"monthly limit and a traffic meter")
	need(c.SelfTestTimeout >= 0, "the self-test timeout is %v, but must not be negative", c.SelfTestTimeout)
	errs = append(errs, c.Presence.Validate())
	if c.Mesh != nil {
		errs = append(errs, c.Mesh.Validate())
	}
	need(c.Observer != nil && c.Logger != nil && c.Rand != nil, "observer, logger and random source must be set")
	return errors.Join(errs...)
}
