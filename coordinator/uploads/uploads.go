// Package uploads receives the agents' updates of a round, validates them and stores them in the round's spool (a
// folder).
package uploads

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// Config configures Uploads.
type Config struct {
	Loop     *host.EventLoop
	Folder   *runs.StateFolder // state folder, which contains the spools
	Observer observe.Observer
	Logger   *slog.Logger
	// MaxBufferedBytes limits the total length of the updates that are being received or stored.
	MaxBufferedBytes int
	MaxUpdateNorm    float64              // maximum Euclidean norm ‖Δ‖₂ of an update Δ; 0 means no limit
	RemovalJobs      *host.SerialJobQueue // queue for removing the spools of earlier rounds
	// StepRoundMachine passes an event to the round machine.
	StepRoundMachine func(round.Event)
	// SendCredit sends a credit for further chunks to an agent.
	SendCredit func(agent wire.AgentID, credit []byte)
	// ReportWriteResult reports the result of a write to the state folder.
	ReportWriteResult func(purpose string, err error)
}

// Uploads manages the updates of the current round, from the offer to the spool. Exported methods must be called on the
// owner goroutine; validation and writes run in jobs.
type Uploads struct {
	cfg          Config
	receiver     *transfer.UpdateReceiver
	spoolByRound map[wire.RoundID]*store.UpdateSpool // open spools; between two rounds there may be two
	offerByAgent map[wire.AgentID]*round.UpdateOffer // offers whose update is being received or is stored
	status       UploadStatusChanged
	storageFails bool // true if storing the last update failed because the disk is full

	announcedRound       wire.RoundID // round of the current announcement
	updateElementCount   int          // number of elements of an update in that round
	maxUnsolicitedChunks uint32       // maximum number of chunks that an agent may send without a credit

	unpackMutex sync.Mutex // held while a whole decoded vector is in memory
}

// New returns Uploads. maxUpdate is the maximum length of an update in bytes.
func New(cfg Config, maxUpdate int) *Uploads {
	receiving := transfer.DefaultReceiverConfig()
	receiving.MaxUpdateBytes, receiving.MaxBufferedBytes = maxUpdate, max(cfg.MaxBufferedBytes, maxUpdate)
	return &Uploads{cfg: cfg, receiver: transfer.NewUpdateReceiver(receiving),
		spoolByRound: map[wire.RoundID]*store.UpdateSpool{},
		offerByAgent: map[wire.AgentID]*round.UpdateOffer{}}
}

// RecoverSpool opens the spool of the record's round, or returns nil if the round is not collecting updates. It removes
// spools of other rounds that a crash left behind.
func (u *Uploads) RecoverSpool(r *round.JournalRecord) (*store.UpdateSpool, error) {
	keep := r.Round
	if r.Phase != round.CoordinatorCollecting {
		keep = 0
	}
	if err := u.cfg.Folder.RemoveSpoolsBut(keep); err != nil || keep == 0 {
		return nil, err
	}
	return u.OpenSpool(r)
}

// OpenSpool opens the spool of the record's round.
func (u *Uploads) OpenSpool(r *round.JournalRecord) (*store.UpdateSpool, error) {
	id := store.RoundSpoolID{Run: uint64(r.Run), Round: uint64(r.Round), BaseModelDigest: r.Plan.BaseModel.Hash}
	s, err := u.cfg.Folder.Disk.OpenSpool(u.cfg.Folder.SpoolPath(r.Round), id, func(problem string) {
		u.cfg.Logger.Warn("stored update is damaged; requesting the update from the agent again", "round", r.Round,
			"problem", problem)
	})
	if err == nil {
		u.spoolByRound[r.Round] = s
	}
	return s, err
}

// SpoolOfRound returns the open spool of a round, or nil.
func (u *Uploads) SpoolOfRound(r wire.RoundID) *store.UpdateSpool { return u.spoolByRound[r] }

// SetAnnouncedRound sets the current round, the number of elements of its updates, and the number of chunks that an
// agent may send without a request.
func (u *Uploads) SetAnnouncedRound(r wire.RoundID, elements int, unsolicitedChunks uint32) {
	u.announcedRound, u.updateElementCount, u.maxUnsolicitedChunks = r, elements, unsolicitedChunks
}

// ReceiveUpdate starts or continues to receive an update that an agent offers.
func (u *Uploads) ReceiveUpdate(e round.ReceiveUpdate) {
	u.offerByAgent[e.Agent] = &e.UpdateOffer
	u.stepReceiver(transfer.UpdateOffer{Agent: e.Agent, AgentBootEpoch: e.Boot, Manifest: e.Update.PayloadManifest,
		InlinePayload: e.Update.InlinePayload,
		Sealer:        e.BlobSealer, UnsolicitedChunks: int(min(e.Update.UnsolicitedChunks, u.maxUnsolicitedChunks))})
}

// ReceiveChunk handles a chunk of an update.
func (u *Uploads) ReceiveChunk(e transfer.ChunkReceived) { u.stepReceiver(e) }

// EndTransfer cancels the transfer of the given update if it is in progress.
func (u *Uploads) EndTransfer(agent wire.AgentID, update wire.Digest) {
	if o := u.offerByAgent[agent]; o != nil && o.Update.PayloadManifest.Hash == update {
		u.endTransferOfAgent(agent)
	}
}

// DiscardRound cancels all transfers and queues the removal of a round's spool.
func (u *Uploads) DiscardRound(r wire.RoundID) {
	for _, agent := range slices.Sorted(maps.Keys(u.offerByAgent)) {
		u.endTransferOfAgent(agent)
	}
	u.recordStorageResult(nil) // no update of that round waits for the disk any more
	spool := u.spoolByRound[r]
	delete(u.spoolByRound, r)
	u.cfg.RemovalJobs.Enqueue(func() {
		if spool != nil {
			u.closeSpool(r, spool)
		}
		if err := u.cfg.Folder.RemoveSpool(r); err != nil {
			u.cfg.Logger.Warn("cannot remove the folder with the updates of an old round", "round", r, "err", err)
		}
	})
}

// StorageFails reports whether updates cannot be stored at present. Meanwhile the deadline of the round is postponed.
func (u *Uploads) StorageFails() bool { return u.storageFails }

// Deadline returns the time at which Tick must be called next. It returns false if no call is needed.
func (u *Uploads) Deadline() (time.Time, bool) { return u.receiver.Deadline() }

// Tick handles expired deadlines of transfers.
func (u *Uploads) Tick() { u.stepReceiver(transfer.Tick{}) }

// Close closes all open spools.
func (u *Uploads) Close() {
	for r, s := range u.spoolByRound {
		u.closeSpool(r, s)
	}
}

func (u *Uploads) closeSpool(r wire.RoundID, s *store.UpdateSpool) {
	if err := s.Close(); err != nil {
		u.cfg.Logger.Warn("cannot close the folder with the round's updates", "round", r, "err", err)
	}
}

// stepReceiver passes an event to the receiver and performs the resulting effects.
func (u *Uploads) stepReceiver(ev transfer.ReceiveEvent) {
	for _, e := range u.receiver.Step(u.cfg.Loop.Now(), ev) {
		switch e := e.(type) {
		case transfer.OpenStorage:
			u.openUpdateStorage(e)
		case transfer.StorageFailed:
			u.cfg.Logger.Error("cannot store a received part of an update; missing chunks will be requested again",
				"agent", e.Agent, "round", u.announcedRound, "err", e.Err)
			u.recordStorageResult(e.Err)
		case transfer.GrantCredit:
			u.cfg.SendCredit(e.Agent, e.Credit.Body())
		case transfer.UpdateComplete:
			u.checkAndSpoolUpdate(e)
		case transfer.RefuseUpdate:
			u.reportRejectedUpdate(e.Agent, u.announcedRound, e.Digest, e.Reason)
		}
	}
	s := u.receiver.Stats()
	if t := (UploadStatusChanged{s.ActiveTransfers, s.QueuedTransfers, s.BufferedBytes}); t != u.status {
		u.status = t
		u.cfg.Observer.Observe(t)
	}
}

// endTransferOfAgent cancels the transfer of an agent's update.
func (u *Uploads) endTransferOfAgent(agent wire.AgentID) {
	delete(u.offerByAgent, agent)
	u.stepReceiver(transfer.DropAgent{Agent: agent})
}

// reportRejectedUpdate reports an invalid update to the round machine, which may have closed the round already.
func (u *Uploads) reportRejectedUpdate(agent wire.AgentID, r wire.RoundID, update wire.Digest,
	reason wire.UpdateRefusalReason) {
	u.cfg.StepRoundMachine(round.UpdateRejected{Agent: agent, Round: r, UpdateDigest: update, Reason: reason})
}

// recordStorageResult records whether an update or a part of it was stored. It informs the round machine when storage
// begins to fail and when it recovers.
func (u *Uploads) recordStorageResult(err error) {
	u.cfg.ReportWriteResult("store an update", err)
	switch failing := store.IsTransientWriteError(err); {
	case failing && !u.storageFails:
		u.storageFails = true
		u.cfg.StepRoundMachine(round.StorageFailed{FailingSince: u.cfg.Loop.Now()})
	case err == nil && u.storageFails:
		u.storageFails = false
		u.cfg.StepRoundMachine(round.StorageRecovered{})
	}
}

// maxInMemory is the maximum size in bytes of an update that is received in memory and then written to the spool's log.
// A larger update is received in a file, which survives a restart and avoids a second write. For small updates a
// separate file would cost more than resending.
const maxInMemory = 1 << 20

// openUpdateStorage provides the receiver with storage for an update, in memory or in a file.
func (u *Uploads) openUpdateStorage(e transfer.OpenStorage) {
	m, spool := e.Manifest, u.spoolByRound[u.announcedRound]
	opened := transfer.StorageOpened{Agent: e.Agent, BlobDigest: m.Hash}
	switch {
	case m.BlobLength <= maxInMemory:
		opened.Storage = transfer.NewMemoryChunkStorage(int(m.BlobLength))
	case spool == nil:
		opened.Err = store.ErrClosed
	default:
		u.cfg.Loop.GoThen(func() func() {
			p, err := spool.OpenPartialUpdate(string(e.Agent), m.Hash, int64(m.BlobLength), wire.MaxChunkBytes,
				func(k int) [32]byte { return m.ChunkDigests[k] })
			if opened.Err = err; err == nil {
				opened.Storage = p
			}
			return func() { u.stepReceiver(opened) }
		})
		return
	}
	u.stepReceiver(opened)
}

// retryInterval is the delay before a write to a full disk is retried.
const retryInterval = 5 * time.Second

// checkAndSpoolUpdate validates a complete update and stores it in the round's spool, in a job.
func (u *Uploads) checkAndSpoolUpdate(e transfer.UpdateComplete) {
	o := u.offerByAgent[e.Agent]
	if o == nil || o.Update.PayloadManifest.Hash != e.Digest || u.spoolByRound[o.Round] == nil {
		_ = e.Storage.Close() // the round has ended: the file is removed with the round's spool
		u.stepReceiver(transfer.UpdateReleased{Agent: e.Agent})
		return
	}
	spool, want := u.spoolByRound[o.Round], updateLimits{u.updateElementCount, u.cfg.MaxUpdateNorm}
	u.cfg.Loop.GoThen(func() func() {
		norm, reason, err := u.checkAndWriteUpdate(spool, o, e.Storage, want)
		return func() {
			u.stepReceiver(transfer.UpdateReleased{Agent: e.Agent})
			u.finishUpload(o, norm, reason, err)
		}
	})
}

// checkAndWriteUpdate validates an update and writes it to the spool. It returns the norm ‖v‖₂ of the update, or the
// reason for refusing the update; err may explain the reason. While the disk is full it waits, so that the agent need
// not resend the update.
func (u *Uploads) checkAndWriteUpdate(spool *store.UpdateSpool, o *round.UpdateOffer, data transfer.ChunkStorage,
	want updateLimits) (float64,
	wire.UpdateRefusalReason, error) {
	e := store.SpoolEntry{Agent: string(o.Agent), PayloadDigest: o.Update.PayloadManifest.Hash,
		SignedManifest: o.SignedManifest,
		PayloadSize:    int64(o.Update.PayloadManifest.BlobLength)}
	norm, reason, err := u.checkUpdate(&o.Update, e.PayloadSize, data, want)
	if file, ok := data.(io.ReaderAt); ok && reason != 0 {
		if changed := verifyUpdateFile(file, e); changed != nil { // the disk is at fault, not the agent
			reason, err = 0, changed
		}
	}
	if closed := data.Close(); reason == 0 {
		err = errors.Join(err, closed)
	}
	if reason != 0 || err != nil {
		return 0, reason, err
	}
	for {
		if m, ok := data.(*transfer.MemoryChunkStorage); ok {
			err = spool.Put(e, m.ChunkPayloads()...)
		} else {
			err = spool.AdoptPartialFile(e, data.(*store.PartialFile))
		}
		if !store.IsTransientWriteError(err) {
			return norm, 0, err
		}
		full := err
		u.cfg.Loop.RunOnLoop(func() { u.recordStorageResult(full) })
		if stopped := u.cfg.Loop.PauseJob(retryInterval); stopped != nil {
			return 0, 0, stopped
		}
	}
}

// verifyUpdateFile compares the content of an update file with the digest of the update. The disk may have changed the
// content after it was received.
func verifyUpdateFile(file io.ReaderAt, e store.SpoolEntry) error {
	sum := wire.NewBlobHasher()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, e.PayloadSize)); err != nil {
		return err
	}
	if sum.Digest() != e.PayloadDigest {
		return fmt.Errorf("the update from %s was changed on this coordinator's disk", e.Agent)
	}
	return nil
}

// finishUpload handles the result of checkAndWriteUpdate: it accepts the update, refuses it, or waits until the agent
// offers the update again.
func (u *Uploads) finishUpload(o *round.UpdateOffer, norm float64, reason wire.UpdateRefusalReason, err error) {
	digest := o.Update.PayloadManifest.Hash
	switch {
	case reason != 0:
		if err != nil {
			u.cfg.Logger.Warn("update refused: the column statistics in the update are impossible", "agent",
				o.Agent,
				"round", o.Round, "err", err)
		}
		u.reportRejectedUpdate(o.Agent, o.Round, digest, reason)
	case errors.Is(err, store.ErrDigestConflict):
		u.reportRejectedUpdate(o.Agent, o.Round, digest, wire.RefuseConflict)
	case errors.Is(err, store.ErrClosed):
		u.reportRejectedUpdate(o.Agent, o.Round, digest, wire.RefuseLate)
	case err != nil:
		u.cfg.Logger.Error("cannot store an update; the agent will offer it again", "agent", o.Agent,
			"round", o.Round, "err", err)
		u.recordStorageResult(err)
		u.endTransferOfAgent(o.Agent)
	default:
		u.recordStorageResult(nil)
		update := o.Update
		update.InlinePayload = nil
		// Drop the manifest, which is also on disk. Keep the offer itself, because its digest is needed until
		// DiscardRound.
		o.SignedManifest, o.Update = nil, wire.Update{PayloadManifest: wire.Manifest{Hash: digest}}
		u.cfg.StepRoundMachine(round.UpdateStored{Agent: o.Agent, Round: o.Round, Update: update, Norm: norm})
	}
}

// Metrics lists the metrics of the events in this package.
var Metrics = []*observe.Metric{receivingTransfers, queuedTransfers, bufferedTransferBytes}

var (
	receivingTransfers = observe.Gauge("transfers_receiving", "Updates that are being received from agents.")
	queuedTransfers    = observe.Gauge("transfers_queued",
		"Offered updates that wait until their reception can begin.")
	bufferedTransferBytes = observe.Gauge("transfers_buffered_bytes",
		"Total size of the updates that are being received or stored, in memory and in files.")
)

// UploadStatusChanged reports that the number or the size of the uploads has changed.
type UploadStatusChanged struct{ Receiving, Queued, BufferedBytes int }

// Describe implements observe.Event.
func (e UploadStatusChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(receivingTransfers, float64(e.Receiving))
	d.SetGauge(queuedTransfers, float64(e.Queued))
	d.SetGauge(bufferedTransferBytes, float64(e.BufferedBytes))
}
