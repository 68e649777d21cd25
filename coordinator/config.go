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

// FolderReplicator replicates the state folder among several coordinators: see package replica.
type FolderReplicator interface {
	// CommitFolderWrite calls write, which modifies the folder, and returns when the result is committed on the other
	// machines. epoch is the epoch of subsequent announcements. Any error other than write's means that another
	// coordinator leads or may lead.
	CommitFolderWrite(ctx context.Context, epoch wire.Epoch, write func() error) error
	// PrepareFolderCommit uploads the folder without committing it, so that the next commit is faster. It may be called
	// on any goroutine.
	PrepareFolderCommit(ctx context.Context)
	// Epoch returns the minimum epoch for announcements.
	Epoch() wire.Epoch
}

// Config configures a Coordinator.
type Config struct {
	Federation wire.FederationName
	Key        ed25519.PrivateKey
	Agents     *enrolled.List // list of agents, which the coordinator owns and closes
	// RootDocuments contains consecutive versions of the root document (signed list of trusted keys). The last version
	// is in force; earlier versions are for devices that were offline. RootDocuments is empty if keys are defined only
	// in configuration files.
	RootDocuments []wire.RootDocument
	Topics        mqtt.Topics
	Round         round.Config
	// Task is the learning task, without the standardisation of its columns.
	Task wire.Task
	// TaskVersion is the version of the applied task. If the run in the state folder has a task of another version, the
	// run adopts this task and keeps its model. 0 means that tasks have no versions.
	TaskVersion uint64
	// Standardize adds a statistics round before the first training round. Standardised features are clipped to
	// ±FeatureClipDeviations; 0 means no clipping.
	Standardize bool
	// RestandardizeVersions lists the model versions that are followed by another statistics round. The run continues
	// with the model in the new standardisation.
	RestandardizeVersions []int
	FeatureClipDeviations float64
	// MaxUpdateNorm is the maximum ‖Δ‖₂ of an accepted update; 0 means no limit.
	MaxUpdateNorm float64
	// MakeEdges computes the edges between the agents of a round in which neighbours mix their models: see package
	// edges.
	MakeEdges func(agents []round.MixingAgent) (meshplan.MixingGraph, error)
	// IssuesAttestations enables signed attestations of agents' keys, for agents that discover their neighbours
	// themselves.
	IssuesAttestations bool
	// HeldOutSource contains data for scoring each new model; nil disables scoring.
	HeldOutSource data.Source
	// StateDir is the path of the state folder. The folder must exist and must not be used by another coordinator.
	StateDir string
	// Disk accesses the state folder; the local disk by default.
	Disk store.Disk
	// FolderReplicator replicates StateDir to other machines; nil for a single coordinator.
	FolderReplicator FolderReplicator
	// Runtime provides the clock and starts goroutines; real time by default.
	Runtime host.JobRuntime
	// Audit is the audit log, whose newest entry is signed in each line of the run's history; may be nil.
	Audit *audit.Log
	// RenewCredentials issues a new key, a new certificate or both to a device, and returns when they are on disk. The
	// device has signed the request with the key that the request contains. RenewCredentials runs on a separate
	// goroutine until ctx ends. vouched is false if the key in the list of agents no longer confirms the request; then
	// no answer is sent.
	RenewCredentials func(ctx context.Context, agent wire.AgentID,
		m *wire.CredentialRenewalRequest) (answer wire.CredentialRenewalAnswer,
		vouched bool)
	// Signatures is the signature scheme; Ed25519 by default.
	Signatures wire.SignatureScheme
	// NewRun starts a new run, even if the state folder contains an unfinished run or the broker retains the
	// announcement of a later run.
	NewRun bool
	// RaiseEpoch raises the epoch at this start above the epochs in the journal and at the broker. Agents then follow
	// this coordinator even if they have already followed an announcement of a later round.
	RaiseEpoch bool
	// StartModel is the model from which a new run starts: VERSION of the newest run, RUN/VERSION,
	// StartFromCurrentModel, or the path of a safetensors file. If the run in the state folder began with that model,
	// it continues unless NewRun is set.
	StartModel string
	// InitialModelPath is the path of a safetensors file with the initial model w_0 of each new run without StartModel.
	// The file also defines the tensors of an external model.
	InitialModelPath string
	// KeepModels is the number of newest models of a run to keep on disk; 0 means all.
	KeepModels int
	// KeepHourlyModels is the number of recent hours for which the newest model of the hour is also kept.
	KeepHourlyModels int
	// KeepRuns is the number of earlier runs whose models are kept when a new run begins; 0 means all.
	KeepRuns int
	// MaxBufferedUpdateBytes limits the total length in bytes of the updates that are being received or stored, in
	// memory or in files.
	MaxBufferedUpdateBytes int
	Observer               observe.Observer
	// OnLinkChange is called on the owner goroutine when the connection to the broker is established or lost; may be
	// nil.
	OnLinkChange func(up bool)
	Logger       *slog.Logger
	Rand         *rand.Rand // source of random numbers for jitter and the self-test
	// FillRandom fills b with random bytes for keys. It is crypto/rand.Read except in tests.
	FillRandom func(b []byte)
	// SelfTestTimeout is the time limit for mqtt.BrokerSelfTest, which checks that the largest messages pass the
	// broker. 0 disables the test.
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
	need(c.Agents != nil, "the list of agents must be set") // The list may lack devices that will join later.
	need(c.StateDir != "", "the state folder is not set")
	need(c.Observer != nil && c.Logger != nil, "observer and logger must be set")
	need(c.Rand != nil && c.FillRandom != nil, "the random sources must be set")
	need(c.SelfTestTimeout >= 0, "the self-test timeout is %v, want 0 or more", c.SelfTestTimeout)
	need(c.Round.Algorithm != spec.FedDec || c.MakeEdges != nil && c.Task.Mixing.IntervalSteps > 0,
		"the algorithm feddec requires a graph of neighbours (mesh.edges) and a task with mixing")
	need(c.Round.Algorithm == spec.FedDec || c.Task.Mixing.IntervalSteps == 0,
		"a task with mixing requires the algorithm feddec")
	var pairs spec.ProblemList
	c.Round.CheckConsistency(&pairs, &c.Task)
	errs = append(errs, pairs.Err())
	need(len(c.RestandardizeVersions) == 0 || c.Standardize && !c.Task.Mixing.HasEndlessBlocks,
		"restandardisation requires task.standardize: true and, with mixing, a task.mixing.server_every other than 0")
	own := c.Task.Personal.UsesDitto || len(c.Task.Personal.PersonalTensors) > 0
	need(len(c.RestandardizeVersions) == 0 || !own,
		"restandardisation is not supported with personal models, because they keep the old standardisation")
	need(c.HeldOutSource == nil || len(c.Task.Personal.PersonalTensors) == 0,
		"the coordinator cannot evaluate on held-out data if agents keep some tensors of the model to themselves")
	need(!c.Round.Rollout.IsEnabled() || !own && c.Task.FinetuneSteps == 0,
		"rollout is not supported with personal models or fine-tuning")
	need(c.FeatureClipDeviations >= 0, "clip is %v, want 0 or more", c.FeatureClipDeviations)
	need(c.MaxUpdateNorm >= 0, "the maximum update norm is %v, want 0 or more", c.MaxUpdateNorm)
	need(c.KeepRuns >= 0, "the number of kept runs is %d, want 0 or more", c.KeepRuns)
	need(c.KeepModels == 0 || c.KeepModels >= 2, "the number of kept models is %d, want 0 (all) or at least 2",
		c.KeepModels)
	return errors.Join(errs...)
}
