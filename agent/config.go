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

// Config is what an agent needs.
type Config struct {
	Federation wire.FederationName
	ID         wire.AgentID
	Identity   identity.Config
	Presence   presence.Config
	Topics     mqtt.Topics
	// TaskData is the source of the agent's rows, and how they are used.
	TaskData taskdata.Config
	// StateDir keeps what must outlive the process. It must exist and be this agent's alone.
	StateDir string
	// IsStateDirVolatile says that StateDir does not survive a power cut; presence tells it.
	IsStateDirVolatile bool
	// Disk contains StateDir; the machine's disk unless set.
	Disk store.Disk
	// Runtime is its time; real time unless set.
	Runtime host.JobRuntime
	// SignatureScheme are Ed25519's unless set.
	SignatureScheme wire.SignatureScheme
	// BootEpoch is the number of this start, larger than at any start before (store.Disk.NextBootEpoch).
	BootEpoch wire.Epoch
	// Training is who trains, and how fast.
	Training training.Config
	// Predict, if set, has the agent keep models to predict with.
	Predict *predict.Config
	// MaxBlobBytes bounds the models and tasks that are fetched, in bytes.
	MaxBlobBytes int
	// MinUplinkRate is what the uplink carries at least; 0 = any number of bytes per second.
	MinUplinkRate transfer.LinkRate
	// Budget, if set, bounds what the uplink of the device may carry in a calendar month: rounds that do not fit are
	// declined. Agents of one device share it.
	Budget *budget.UplinkBudget
	Now    func() time.Time // of day, for the budget's months; time.Now unless set

	Observer observe.Observer
	Logger   *slog.Logger
	Rand     *rand.Rand // jitter and nonces; never training
	// SelfTestTimeout is how long the broker has for bringing a message back that the agent
	// sends to itself, to learn whether the largest ones come through
	// (mqtt.BrokerSelfTest); 0 = that is not tested.
	SelfTestTimeout time.Duration

	// JudgeDevice, if set, has the rules of the device's owner.
	JudgeDevice device.RuleJudge

	// Mesh is the way to the neighbours; nil for an agent that does not mix.
	Mesh *mesh.Config
}

func (c *Config) stateFolder() state.Folder {
	return state.Folder{Disk: c.Disk, Dir: c.StateDir, Volatile: c.IsStateDirVolatile, Observer: c.Observer}
}

// setDefaults sets what is not given.
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
	need(c.StateDir != "", "there is no state folder")
	need(c.BootEpoch > 0, "the boot epoch counts from 1")
	need(c.MaxBlobBytes > 0, "the largest model must have some bytes")
	errs = append(errs, c.Predict.Validate())
	need(c.Budget == nil || c.Budget.MonthlyBytes > 0 && c.Budget.Meter != nil, "a budget needs a limit and a meter")
	need(c.SelfTestTimeout >= 0, "the self-test's time must not be negative, is %v", c.SelfTestTimeout)
	errs = append(errs, c.Presence.Validate())
	if c.Mesh != nil {
		errs = append(errs, c.Mesh.Validate())
	}
	need(c.Observer != nil && c.Logger != nil && c.Rand != nil, "observer, logger and randomness must be given")
	return errors.Join(errs...)
}
