// Package uploads receives the updates of a round from agents, checks them, and stores them in the round's spool.
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

// Config is the part's access to the coordinator.
type Config struct {
	Loop     *host.EventLoop
	Folder   *runs.StateFolder // has the spools
	Observer observe.Observer
	Logger   *slog.Logger
	// MaxBufferedBytes bounds the sum of the lengths of the updates that are being received or stored.
	MaxBufferedBytes int
	MaxUpdateNorm    float64              // updates with a larger ‖Δ‖₂ are refused; 0 = there is no limit
	RemovalJobs      *host.SerialJobQueue // removes the spools of earlier rounds
	// StepRoundMachine gives the round machine an event.
	StepRoundMachine func(round.Event)
	// SendCredit sends a credit for chunks to an agent.
	SendCredit func(agent wire.AgentID, credit []byte)
	// ReportWriteResult reports the result of a write to the state folder.
	ReportWriteResult func(purpose string, err error)
}

// Uploads is the updates of the present round that are on their way, or in the spool. All exported methods are
// called on the owner's goroutine; put and check run in jobs.
type Uploads struct {
	cfg          Config
	receiver     *transfer.UpdateReceiver
	spoolByRound map[wire.RoundID]*store.UpdateSpool // of the present round; between two rounds there may be two
	offerByAgent map[wire.AgentID]*round.UpdateOffer // being received, or stored
	status       UploadStatusChanged
	storageFails bool // the last attempt to store an update failed for want of space

	announcedRound       wire.RoundID // of the present announcement
	updateElementCount   int          // of an update's vector in that round
	maxUnsolicitedChunks uint32       // that an agent may send before it gets a credit

	unpackMutex sync.Mutex // held while a vector that can only be unpacked whole is in memory
}

// New makes the part. The longest update has maxUpdate bytes.
func New(cfg Config, maxUpdate int) *Uploads {
	receiving := transfer.DefaultReceiverConfig()
	receiving.MaxUpdateBytes, receiving.MaxBufferedBytes = maxUpdate, max(cfg.MaxBufferedBytes, maxUpdate)
	return &Uploads{cfg: cfg, receiver: transfer.NewUpdateReceiver(receiving),
		spoolByRound: map[wire.RoundID]*store.UpdateSpool{},
		offerByAgent: map[wire.AgentID]*round.UpdateOffer{}}
}

// RecoverSpool opens the spool of the record's round, if the round has one, else it returns nil. It removes the spools
// of other rounds that a crash left behind.
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
		u.cfg.Logger.Warn("an update in the spool was damaged; its agent is asked again", "round", r.Round,
			"problem", problem)
	})
	if err == nil {
		u.spoolByRound[r.Round] = s
	}
	return s, err
}

// SpoolOfRound returns the spool of a round; nil if it is not open.
func (u *Uploads) SpoolOfRound(r wire.RoundID) *store.UpdateSpool { return u.spoolByRound[r] }

// SetAnnouncedRound sets what holds for the updates of the round that is announced.
func (u *Uploads) SetAnnouncedRound(r wire.RoundID, elements int, unsolicitedChunks uint32) {
	u.announcedRound, u.updateElementCount, u.maxUnsolicitedChunks = r, elements, unsolicitedChunks
}

// ReceiveUpdate begins to receive an update that an agent offers.
func (u *Uploads) ReceiveUpdate(e round.ReceiveUpdate) {
	u.offerByAgent[e.Agent] = &e.UpdateOffer
	u.stepReceiver(transfer.UpdateOffer{Agent: e.Agent, AgentBootEpoch: e.Boot, Manifest: e.Update.PayloadManifest,
		InlinePayload: e.Update.InlinePayload,
		Sealer:        e.BlobSealer, UnsolicitedChunks: int(min(e.Update.UnsolicitedChunks, u.maxUnsolicitedChunks))})
}

// ReceiveChunk handles a chunk of an update.
func (u *Uploads) ReceiveChunk(e transfer.ChunkReceived) { u.stepReceiver(e) }

// EndTransfer ends the transfer of an update, if it is under way.
func (u *Uploads) EndTransfer(agent wire.AgentID, update wire.Digest) {
	if o := u.offerByAgent[agent]; o != nil && o.Update.PayloadManifest.Hash == update {
		u.endTransferOfAgent(agent)
	}
}

// DiscardRound ends all transfers, and has the spool of a round removed.
func (u *Uploads) DiscardRound(r wire.RoundID) {
	for _, agent := range slices.Sorted(maps.Keys(u.offerByAgent)) {
		u.endTransferOfAgent(agent)
	}
	u.recordStorageResult(nil) // nothing of that round waits for the disk any more
	spool := u.spoolByRound[r]
	delete(u.spoolByRound, r)
	u.cfg.RemovalJobs.Enqueue(func() {
		if spool != nil {
			u.closeSpool(r, spool)
		}
		if err := u.cfg.Folder.RemoveSpool(r); err != nil {
			u.cfg.Logger.Warn("an old spool is left behind", "round", r, "err", err)
		}
	})
}

// StorageFails reports whether updates cannot be stored at present. The time of the round stands still meanwhile.
func (u *Uploads) StorageFails() bool { return u.storageFails }

// Deadline returns when the receiver has something to do.
func (u *Uploads) Deadline() (time.Time, bool) { return u.receiver.Deadline() }

// Tick is called when a deadline of the coordinator has passed.
func (u *Uploads) Tick() { u.stepReceiver(transfer.Tick{}) }

// Close closes the spools.
func (u *Uploads) Close() {
	for r, s := range u.spoolByRound {
		u.closeSpool(r, s)
	}
}

func (u *Uploads) closeSpool(r wire.RoundID, s *store.UpdateSpool) {
	if err := s.Close(); err != nil {
		u.cfg.Logger.Warn("closing the spool", "round", r, "err", err)
	}
}

// stepReceiver steps the receiver and performs its effects.
func (u *Uploads) stepReceiver(ev transfer.ReceiveEvent) {
	for _, e := range u.receiver.Step(u.cfg.Loop.Now(), ev) {
		switch e := e.(type) {
		case transfer.OpenStorage:
			u.openUpdateStorage(e)
		case transfer.StorageFailed:
			u.cfg.Logger.Error("an update on its way cannot be stored; its missing chunks will be asked for again",
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

// endTransferOfAgent ends the transfer of an agent.
func (u *Uploads) endTransferOfAgent(agent wire.AgentID) {
	delete(u.offerByAgent, agent)
	u.stepReceiver(transfer.DropAgent{Agent: agent})
}

// reportRejectedUpdate reports an invalid update to the round machine, which may have closed the round already.
func (u *Uploads) reportRejectedUpdate(agent wire.AgentID, r wire.RoundID, update wire.Digest,
	reason wire.UpdateRefusalReason) {
	u.cfg.StepRoundMachine(round.UpdateRejected{Agent: agent, Round: r, UpdateDigest: update, Reason: reason})
}

// recordStorageResult records the result of storing an update or a part of it.
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

// maxInMemory is the length, in bytes, of the longest update that is received in memory and then written to the spool's
// log. A longer one is received in a file and stays there: a restart keeps its chunks, and nothing is written twice.
// For a small one a file of its own would cost more than sending it again.
const maxInMemory = 1 << 20

// openUpdateStorage gives the receiver a storage for an update.
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

// retryInterval is the time after which a write that failed for want of space is tried again.
const retryInterval = 5 * time.Second

// checkAndSpoolUpdate checks a complete update and stores it in the round's spool, beside the owner.
func (u *Uploads) checkAndSpoolUpdate(e transfer.UpdateComplete) {
	o := u.offerByAgent[e.Agent]
	if o == nil || o.Update.PayloadManifest.Hash != e.Digest || u.spoolByRound[o.Round] == nil {
		_ = e.Storage.Close() // its round is over: its file is removed with the spool
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

// checkAndWriteUpdate checks an update, writes it to the spool and returns its ‖v‖₂, or the reason why it is refused;
// err may explain the reason. While the disk is full it waits, so that the agent need not send the update again.
func (u *Uploads) checkAndWriteUpdate(spool *store.UpdateSpool, o *round.UpdateOffer, data transfer.ChunkStorage,
	want updateLimits) (float64,
	wire.UpdateRefusalReason, error) {
	e := store.SpoolEntry{Agent: string(o.Agent), PayloadDigest: o.Update.PayloadManifest.Hash,
		SignedManifest: o.SignedManifest,
		PayloadSize:    int64(o.Update.PayloadManifest.BlobLength)}
	norm, reason, err := u.checkUpdate(&o.Update, e.PayloadSize, data, want)
	if file, ok := data.(io.ReaderAt); ok && reason != 0 {
		if changed := verifyUpdateFile(file, e); changed != nil { // the agent is not to blame
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

// verifyUpdateFile compares an update in a file with its digest: it was complete, but the disk may have changed it
// since.
func verifyUpdateFile(file io.ReaderAt, e store.SpoolEntry) error {
	sum := wire.NewBlobHasher()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, e.PayloadSize)); err != nil {
		return err
	}
	if sum.Digest() != e.PayloadDigest {
		return fmt.Errorf("the update of %s was changed on this coordinator's disk", e.Agent)
	}
	return nil
}

// finishUpload handles the result of put: it accepts the update, refuses it, or waits for another offer.
func (u *Uploads) finishUpload(o *round.UpdateOffer, norm float64, reason wire.UpdateRefusalReason, err error) {
	digest := o.Update.PayloadManifest.Hash
	switch {
	case reason != 0:
		if err != nil {
			u.cfg.Logger.Warn("an update is refused: no data can have these statistics", "agent", o.Agent,
				"round", o.Round, "err", err)
		}
		u.reportRejectedUpdate(o.Agent, o.Round, digest, reason)
	case errors.Is(err, store.ErrDigestConflict):
		u.reportRejectedUpdate(o.Agent, o.Round, digest, wire.RefuseConflict)
	case errors.Is(err, store.ErrClosed):
		u.reportRejectedUpdate(o.Agent, o.Round, digest, wire.RefuseLate)
	case err != nil:
		u.cfg.Logger.Error("an update could not be stored; the agent will offer it again", "agent", o.Agent,
			"round", o.Round, "err", err)
		u.recordStorageResult(err)
		u.endTransferOfAgent(o.Agent)
	default:
		u.recordStorageResult(nil)
		update := o.Update
		update.InlinePayload = nil
		// The whole manifest is in the spool. The emptied offer stays until Discard, so that Refuse and
		// checkAndSpoolUpdate still find its digest.
		o.SignedManifest, o.Update = nil, wire.Update{PayloadManifest: wire.Manifest{Hash: digest}}
		u.cfg.StepRoundMachine(round.UpdateStored{Agent: o.Agent, Round: o.Round, Update: update, Norm: norm})
	}
}

// Metrics are the metrics of the part's events.
var Metrics = []*observe.Metric{receivingTransfers, queuedTransfers, bufferedTransferBytes}

var (
	receivingTransfers = observe.Gauge("transfers_receiving", "Updates in reception.")
	queuedTransfers    = observe.Gauge("transfers_queued",
		"Offered updates waiting for reception.")
	bufferedTransferBytes = observe.Gauge("transfers_buffered_bytes",
		"Size of the updates in reception or storage, in memory and files.")
)

// UploadStatusChanged: the number or the size of the uploads has changed.
type UploadStatusChanged struct{ Receiving, Queued, BufferedBytes int }

// Describe implements observe.Event.
func (e UploadStatusChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(receivingTransfers, float64(e.Receiving))
	d.SetGauge(queuedTransfers, float64(e.Queued))
	d.SetGauge(bufferedTransferBytes, float64(e.BufferedBytes))
}
