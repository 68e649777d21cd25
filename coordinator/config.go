package coordinator

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// FolderReplicator is the lead of several coordinators that keep one state folder: see package replica.
type FolderReplicator interface {
	// Commit has write write to the folder, and returns when what it has written counts on the other machines. epoch
	// is that of the announcements that follow. An error of its own says that another coordinator leads, or may.
	Commit(ctx context.Context, epoch wire.Epoch, write func() error) error
	// Prepare brings what is in the folder to the other machines, where it does not count yet: a commit has less to do
	// then. It is called beside the owner.
	Prepare(ctx context.Context)
	// Epoch is the least one that the coordinator announces in.
	Epoch() wire.Epoch
}

// Config is what a coordinator needs.
type Config struct {
	Federation wire.Federation
	Key        ed25519.PrivateKey
	Agents     *enrolled.List // those who may take part; closed when the coordinator ends
	// RootDocuments are root documents, each one after the one before: the last one counts, and all are for devices
	// that have been away. Empty where the keys stand in the configurations alone.
	RootDocuments []wire.RootDocument
	Topics        mqtt.Topics
	Round         round.Config
	// Task is what is learned, without a standardisation.
	Task wire.Task
	// TaskVersion tells one applied task from the next. A run in the folder that has stood under another one goes on
	// under this one, with its model; 0 = tasks are not told apart.
	TaskVersion uint64
	// Standardize holds a statistics round before the first training round;
	// features are clipped to ±Clip standard deviations, 0 = not at all.
	Standardize bool
	// RestandardizeVersions are the versions of a run at which another one is held, and the model goes on in its
	// columns.
	RestandardizeVersions []int
	FeatureClip           float64
	// MaxNorm refuses updates with a larger ‖Δ‖₂; 0 = none.
	MaxNorm float64
	// MakeEdges makes the edges between the agents of a round, where agents mix: see package edges.
	MakeEdges func(agents []round.MeshAgent) (Mesh, error)
	// IssuesAttestations has the coordinator give each agent its word about the agent's key, where agents look for
	// neighbours by themselves.
	IssuesAttestations bool
	// HeldOutSource, if set, is data on which each new model is scored.
	HeldOutSource data.Source
	// Dir keeps what must outlive the process. It must exist and be this coordinator's alone.
	Dir string
	// Disk is where Dir is; the machine's unless set.
	Disk store.Disk
	// FolderReplicator, if set, keeps Dir on other machines, too.
	FolderReplicator FolderReplicator
	// Runtime is its time; real time unless set.
	Runtime host.Runtime
	// Audit, if set, is the log whose head stands in each line of the history.
	Audit *audit.Log
	// RenewCredentials, if set, gives a device another key in the list, a certificate, or both, and returns when that
	// is on the disk. The request is signed with its Key. It is called beside the owner, and ends with ctx. vouched is
	// false if the key in the list does not vouch for the request any more: then there is no answer.
	RenewCredentials func(ctx context.Context, agent wire.AgentID, m *wire.RenewalRequest) (answer wire.RenewalAnswer,
		vouched bool)
	// Signatures are Ed25519's unless set.
	Signatures wire.SignatureScheme
	// NewRun begins a new run even if the folder holds an unfinished one, or the broker retains a later one.
	NewRun bool
	// RaiseEpoch raises the epoch at this start above that of the journal and of what the broker retains: agents then
	// obey this coordinator, whatever they have obeyed before.
	RaiseEpoch bool
	// StartModel, if set, names the model with which a new run begins: VERSION of the newest run, RUN/VERSION,
	// StartFromCurrentModel, or the path of a safetensors file. A folder whose run began with that model goes on with
	// it, unless NewRun is set.
	StartModel string
	// InitialModelPath, if set, is the path of a safetensors file with w_0 of each new run without From. A task whose
	// model is external has its tensors from there.
	InitialModelPath string
	// KeepModels is how many of a run's newest models stay on disk; 0 = all.
	KeepModels int
	// KeepHourlyModels keeps the newest model of each of the last KeepHourly hours in which there were any, in
	// addition.
	KeepHourlyModels int
	// KeepRuns is how many earlier runs' models stay on disk when a new run begins; 0 = all.
	KeepRuns int
	// MaxBufferedUpdateBytes bounds the sum of the lengths of the updates that are being
	// received or stored, in memory or, if they are large, in files.
	MaxBufferedUpdateBytes int
	Observer               observe.Observer
	// OnLinkChange, if set, is called when the connection to the broker was made or lost, in the goroutine of Run.
	OnLinkChange func(up bool)
	Logger       *slog.Logger
	Rand         *rand.Rand // jitter, and the self-test
	// FillRandom fills key material: crypto/rand.Read but in tests.
	FillRandom func(b []byte)
	// SelfTestTimeout is how long the broker has for bringing a message back that the coordinator
	// sends to itself, to learn whether the largest ones come through
	// (mqtt.SelfTest); 0 = that is not tested.
	SelfTestTimeout time.Duration
}

func (c *Config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, c.Federation.Validate(), c.Round.Validate(), c.checkRoots())
	need(len(c.Key) == ed25519.PrivateKeySize, "the coordinator's key has %d bytes, want %d", len(c.Key),
		ed25519.PrivateKeySize)
	need(c.Agents != nil, "the list of agents must be given") // those that are to join are not in it yet
	need(c.Dir != "", "there is no state folder")
	need(c.Observer != nil && c.Logger != nil, "observer and logger must be given")
	need(c.Rand != nil && c.FillRandom != nil, "randomness must be given")
	need(c.SelfTestTimeout >= 0, "the time of the self-test must not be negative, is %v", c.SelfTestTimeout)
	need(c.Round.Algorithm != spec.FedDec || c.MakeEdges != nil && c.Task.Mixing.IntervalSteps > 0,
		"feddec needs edges, and a task with mixing")
	need(c.Round.Algorithm == spec.FedDec || c.Task.Mixing.IntervalSteps == 0,
		"a task with mixing needs the algorithm feddec")
	var pairs spec.ProblemList
	c.Round.CheckConsistency(&pairs, &c.Task)
	errs = append(errs, pairs.Err())
	need(len(c.RestandardizeVersions) == 0 || c.Standardize && !c.Task.Mixing.EndlessBlocks,
		"columns are standardised again only where they are at all, and where blocks have an end")
	own := c.Task.Personal.Ditto || len(c.Task.Personal.Tensors) > 0
	need(len(c.RestandardizeVersions) == 0 || !own,
		"columns are not standardised again where agents have models of their own, which are of the old columns")
	need(c.HeldOutSource == nil || len(c.Task.Personal.Tensors) == 0,
		"held-out data score no model of which agents have parts of their own")
	need(!c.Round.Rollout.On() || !own && c.Task.FinetuneSteps == 0, "models that are agents' own are not rolled out")
	need(c.FeatureClip >= 0, "clip must not be negative, is %v", c.FeatureClip)
	need(c.MaxNorm >= 0, "the largest norm must not be negative, is %v", c.MaxNorm)
	need(c.KeepRuns >= 0, "the number of kept runs must not be negative, is %d", c.KeepRuns)
	need(c.KeepModels == 0 || c.KeepModels >= 2, "the number of kept models must be 0 (all) or at least 2, is %d",
		c.KeepModels)
	return errors.Join(errs...)
}
