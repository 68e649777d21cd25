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
	"github.com/fedmesh/fedmesh/coordinator/meshplan"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// FolderReplicator replicates the state folder of the leader among several coordinators: see package replica.
type FolderReplicator interface {
	// CommitFolderWrite calls write, which writes to the folder, and returns when the other machines have the result in
	// force. epoch is the epoch of the announcements that follow. An error that is not write's means that another
	// coordinator leads, or may lead.
	CommitFolderWrite(ctx context.Context, epoch wire.Epoch, write func() error) error
	// PrepareFolderCommit copies the folder to the other machines, where it is not in force yet, so that Commit has
	// less to do. It is called beside the owner.
	PrepareFolderCommit(ctx context.Context)
	// Epoch returns the lowest epoch in which the coordinator may announce.
	Epoch() wire.Epoch
}

// Config is the configuration of a coordinator.
type Config struct {
	Federation wire.FederationName
	Key        ed25519.PrivateKey
	Agents     *enrolled.List // agents that may take part; closed when the coordinator ends
	// RootDocuments are consecutive versions of the root document. The last one is in force; the earlier ones are for
	// messageChecker that have been away. It is empty if keys are in the configurations only.
	RootDocuments []wire.RootDocument
	Topics        mqtt.Topics
	Round         round.Config
	// Task is what is learned, without a standardisation.
	Task wire.Task
	// TaskVersion is the version of the applied task. A run in the folder with another version adopts the task and
	// keeps its model. 0 = tasks have no versions.
	TaskVersion uint64
	// Standardize holds a statistics round before the first training round;
	// features are clipped to ±Clip standard deviations, 0 = not at all.
	Standardize bool
	// RestandardizeVersions are the model versions after which another statistics round is held. The run continues with
	// the model in the new standardisation.
	RestandardizeVersions []int
	FeatureClipDeviations float64
	// MaxUpdateNorm refuses updates with a larger ‖Δ‖₂; 0 = none.
	MaxUpdateNorm float64
	// MakeEdges makes the edges between the agents of a round if agents mix: see package edges.
	MakeEdges func(agents []round.MixingAgent) (meshplan.MixingGraph, error)
	// IssuesAttestations has the coordinator sign each agent's key, for agents that look for neighbours by themselves.
	IssuesAttestations bool
	// HeldOutSource, if set, has data on which each new model is scored.
	HeldOutSource data.Source
	// StateDir is the state folder. It must exist, and no other coordinator may use it.
	StateDir string
	// Disk contains Dir; the machine's disk unless set.
	Disk store.Disk
	// FolderReplicator, if set, replicates Dir to other machines.
	FolderReplicator FolderReplicator
	// Runtime is the clock, and starts goroutines; real time unless set.
	Runtime host.JobRuntime
	// Audit, if set, is the log whose head is in each line of the history.
	Audit *audit.Log
	// RenewCredentials, if set, gives a device another key in the list, a certificate, or both, and returns when they
	// are on disk. The request is signed with the key in it. It is called beside the owner, and ends with ctx. vouched
	// is false if the key in the list no longer vouches for the request: then there is no answer.
	RenewCredentials func(ctx context.Context, agent wire.AgentID,
		m *wire.CredentialRenewalRequest) (answer wire.CredentialRenewalAnswer,
		vouched bool)
	// Signatures is the scheme of signatures; Ed25519 unless set.
	Signatures wire.SignatureScheme
	// NewRun begins a new run even if the folder holds an unfinished one, or the broker retains a later one.
	NewRun bool
	// RaiseEpoch raises the epoch at this start above that of the journal and of what the broker retains: agents then
	// obey this coordinator, whatever they have obeyed before.
	RaiseEpoch bool
	// StartModel, if set, names the model with which a new run begins: VERSION of the newest run, RUN/VERSION,
	// StartFromCurrentModel, or the path of a safetensors file. If the run in the folder began with that model, it
	// continues, unless NewRun is set.
	StartModel string
	// InitialModelPath, if set, is the path of a safetensors file with w_0 of each new run without StartModel. An
	// external model has its tensors from there.
	InitialModelPath string
	// KeepModels is the number of newest models of a run that stay on disk; 0 = all.
	KeepModels int
	// KeepHourlyModels is the number of last hours with models of which the newest model is kept in addition.
	KeepHourlyModels int
	// KeepRuns is the number of earlier runs whose models stay on disk when a new run begins; 0 = all.
	KeepRuns int
	// MaxBufferedUpdateBytes bounds the sum of the lengths of the updates that are being
	// received or stored, in memory or, if they are large, in files.
	MaxBufferedUpdateBytes int
	Observer               observe.Observer
	// OnLinkChange, if set, is called on the owner's goroutine when the connection to the broker was made or lost.
	OnLinkChange func(up bool)
	Logger       *slog.Logger
	Rand         *rand.Rand // jitter, and the self-test
	// FillRandom draws key material: crypto/rand.Read, except in tests.
	FillRandom func(b []byte)
	// SelfTestTimeout is the time within which the broker must return a message that the coordinator sends to itself,
	// to test whether the largest messages pass (mqtt.BrokerSelfTest); 0 = no test.
	SelfTestTimeout time.Duration
}

func (c *Config) validate() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, c.Federation.Validate(), c.Round.Validate(), c.checkRootDocuments())
	need(len(c.Key) == ed25519.PrivateKeySize, "the coordinator's key has %d bytes, want %d", len(c.Key),
		ed25519.PrivateKeySize)
	need(c.Agents != nil, "the list of agents must be given") // those that are to join are not in it yet
	need(c.StateDir != "", "there is no state folder")
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
	need(len(c.RestandardizeVersions) == 0 || c.Standardize && !c.Task.Mixing.HasEndlessBlocks,
		"columns are standardised again only where they are at all, and where blocks have an end")
	own := c.Task.Personal.UsesDitto || len(c.Task.Personal.PersonalTensors) > 0
	need(len(c.RestandardizeVersions) == 0 || !own,
		"columns are not standardised again where agents have models of their own, which are of the old columns")
	need(c.HeldOutSource == nil || len(c.Task.Personal.PersonalTensors) == 0,
		"held-out data score no model of which agents have parts of their own")
	need(!c.Round.Rollout.IsEnabled() || !own && c.Task.FinetuneSteps == 0,
		"models that are agents' own are not rolled out")
	need(c.FeatureClipDeviations >= 0, "clip must not be negative, is %v", c.FeatureClipDeviations)
	need(c.MaxUpdateNorm >= 0, "the largest norm must not be negative, is %v", c.MaxUpdateNorm)
	need(c.KeepRuns >= 0, "the number of kept runs must not be negative, is %d", c.KeepRuns)
	need(c.KeepModels == 0 || c.KeepModels >= 2, "the number of kept models must be 0 (all) or at least 2, is %d",
		c.KeepModels)
	return errors.Join(errs...)
}
