package coordinator

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// recoverSpool opens the spool of the record's round, if the round has one, and returns what is left in it. It removes
// the spools that a crash left of other rounds.
func (c *Coordinator) recoverSpool(r round.Record) (map[wire.AgentID]round.SpooledUpdate, error) {
	keep := r.Round
	if r.Phase != round.CoordinatorCollecting {
		keep = 0
	}
	if err := c.stateFolder.RemoveSpoolsBut(keep); err != nil || keep == 0 {
		return nil, err
	}
	if err := c.openSpool(r); err != nil {
		return nil, err
	}
	return c.aggregator.SpooledUpdates(c.spools[r.Round], r.Plan.Kind)
}

// openSpool opens the spool of the record's round.
func (c *Coordinator) openSpool(r round.Record) error {
	id := store.SpoolID{Run: uint64(r.Run), Round: uint64(r.Round), Base: r.Plan.Base.Hash}
	s, err := c.stateFolder.Disk.OpenSpool(c.stateFolder.SpoolPath(r.Round), id, func(problem string) {
		c.cfg.Logger.Warn("an update in the spool was damaged; its agent is asked again", "round", r.Round,
			"problem", problem)
	})
	if err == nil {
		c.spools[r.Round] = s
	}
	return err
}

// stepReceiver steps the receiver and carries out its effects.
func (c *Coordinator) stepReceiver(ev transfer.ReceiveEvent) {
	for _, e := range c.receiver.Step(c.ownerLoop.Now(), ev) {
		switch e := e.(type) {
		case transfer.OpenStorage:
			c.openStorage(e)
		case transfer.StorageFailed:
			c.cfg.Logger.Error("an update on its way cannot be stored; its missing chunks will be asked for again",
				"agent", e.Agent, "round", c.currentRound(), "err", e.Err)
			c.noteUpdateStorage(e.Err)
		case transfer.GrantCredit:
			c.sendToAgent(e.Agent, wire.TypeCredit, c.runID, c.currentRound(), e.Credit.Body())
		case transfer.UpdateComplete:
			c.checkAndSpoolUpdate(e)
		case transfer.RefuseUpdate:
			c.rejectUpdate(e.Agent, c.currentRound(), e.Digest, e.Reason)
		}
	}
	s := c.receiver.Stats()
	if t := (UploadStatusChanged{s.ActiveTransfers, s.Queued, s.BufferedBytes}); t != c.uploadStatus {
		c.uploadStatus = t
		c.cfg.Observer.Observe(t)
	}
}

// endTransfer ends the transfer of an agent.
func (c *Coordinator) endTransfer(agent wire.AgentID) {
	delete(c.offers, agent)
	c.stepReceiver(transfer.DropAgent{Agent: agent})
}

// rejectUpdate ends an agent's participation in a round, which may be over by now.
func (c *Coordinator) rejectUpdate(agent wire.AgentID, r wire.RoundID, update wire.Digest,
	reason wire.UpdateRefusalReason) {
	c.stepMachine(round.UpdateRejected{Agent: agent, Round: r, Update: update, Reason: reason})
}

// inMemory is the longest update, in bytes, that is received in memory and then written to the spool's log. A longer
// one is received in a file and stays there: a restart keeps its chunks, and nothing is written twice. For a small one
// a file of its own would cost more than sending it again.
const inMemory = 1 << 20

// openStorage gives the receiver a storage for an update.
func (c *Coordinator) openStorage(e transfer.OpenStorage) {
	m := e.Manifest
	answer := transfer.StorageOpened{Agent: e.Agent, Blob: m.Hash}
	if m.Length <= inMemory {
		answer.Data = transfer.NewMemoryStorage(int(m.Length))
		c.stepReceiver(answer)
		return
	}
	spool := c.spools[c.currentRound()]
	if spool == nil {
		answer.Err = store.ErrClosed
		c.stepReceiver(answer)
		return
	}
	c.runInBackground(func() func() {
		p, err := spool.OpenPartial(string(e.Agent), m.Hash, int64(m.Length), wire.MaxChunk,
			func(k int) [32]byte { return m.Chunks[k] })
		if answer.Err = err; err == nil {
			answer.Data = p
		}
		return func() { c.stepReceiver(answer) }
	})
}

// checkAndSpoolUpdate checks a whole update and puts it into the round's spool, outside the owner's goroutine.
func (c *Coordinator) checkAndSpoolUpdate(e transfer.UpdateComplete) {
	o := c.offers[e.Agent]
	if o == nil || o.Update.Payload.Hash != e.Digest || c.spools[o.Round] == nil {
		_ = e.Data.Close() // its round is over: its file is removed with the spool
		c.stepReceiver(transfer.UpdateStored{Agent: e.Agent})
		return
	}
	spool, want := c.spools[o.Round], updateLimits{c.modelShape.elements, c.cfg.MaxNorm}
	c.runInBackground(func() func() {
		norm, reason, err := c.spoolUpdate(spool, o, e.Data, want)
		return func() {
			c.stepReceiver(transfer.UpdateStored{Agent: e.Agent})
			c.finishSpooling(o, norm, reason, err)
		}
	})
}

// spoolUpdate writes an update to the spool and returns its ‖v‖₂, or the reason why it is refused; err may explain the
// reason. While the disk is full it waits, so that the agent need not send the update again.
func (c *Coordinator) spoolUpdate(spool *store.Spool, o *round.Offer, data transfer.Storage,
	want updateLimits) (float64,
	wire.UpdateRefusalReason, error) {
	e := store.SpoolEntry{Agent: string(o.Agent), Digest: o.Update.Payload.Hash, SignedManifest: o.SignedManifest,
		Size: int64(o.Update.Payload.Length)}
	norm, reason, err := c.checkUpdate(&o.Update, e.Size, data, want)
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
		if m, ok := data.(*transfer.MemoryStorage); ok {
			err = spool.Put(e, m.Pieces()...)
		} else {
			err = spool.Adopt(e, data.(*store.PartialFile))
		}
		if !store.IsTransient(err) {
			return norm, 0, err
		}
		full := err
		c.ownerLoop.RunOnLoop(func() { c.noteUpdateStorage(full) })
		if stopped := c.ownerLoop.PauseJob(persistAgain); stopped != nil {
			return 0, 0, stopped
		}
	}
}

// verifyUpdateFile holds an update that came into a file against its digest: it came whole, and a disk may have changed
// it since.
func verifyUpdateFile(file io.ReaderAt, e store.SpoolEntry) error {
	sum := wire.NewBlobHasher()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, e.Size)); err != nil {
		return err
	}
	if sum.Digest() != e.Digest {
		return fmt.Errorf("the update of %s was changed on this coordinator's disk", e.Agent)
	}
	return nil
}

// finishSpooling takes the result of spoolUpdate: it accepts the update, refuses it, or waits for another offer.
func (c *Coordinator) finishSpooling(o *round.Offer, norm float64, reason wire.UpdateRefusalReason, err error) {
	digest := o.Update.Payload.Hash
	switch {
	case reason != 0:
		if err != nil {
			c.cfg.Logger.Warn("an update is refused: no data can have these statistics", "agent", o.Agent,
				"round", o.Round, "err", err)
		}
		c.rejectUpdate(o.Agent, o.Round, digest, reason)
	case errors.Is(err, store.ErrConflict):
		c.rejectUpdate(o.Agent, o.Round, digest, wire.RefuseConflict)
	case errors.Is(err, store.ErrClosed):
		c.rejectUpdate(o.Agent, o.Round, digest, wire.RefuseLate)
	case err != nil:
		c.cfg.Logger.Error("an update could not be stored; the agent will offer it again", "agent", o.Agent,
			"round", o.Round, "err", err)
		c.noteUpdateStorage(err)
		c.endTransfer(o.Agent)
	default:
		c.noteUpdateStorage(nil)
		u := o.Update
		u.Inline = nil
		// the whole manifest is in the spool
		o.SignedManifest, o.Update = nil, wire.Update{Payload: wire.Manifest{Hash: digest}}
		c.stepMachine(round.UpdateStored{Agent: o.Agent, Round: o.Round, Update: u, Norm: norm})
	}
}

// checked is how many bytes of an update are checked at a time, at most.
const checked = 8 << 10

// updateLimits is what the vector of a training update is held against.
type updateLimits struct {
	elements int
	maxNorm  float64 // 0 = any
}

// checkUpdate returns ‖v‖₂ of an update's vector, or the reason why it is refused. err explains the reason or, without
// a reason, is a read error.
func (c *Coordinator) checkUpdate(u *wire.Update, size int64, data transfer.Storage, want updateLimits) (float64,
	wire.UpdateRefusalReason, error) {
	if u.Kind == wire.KindStatistics {
		return checkMoments(u, size, data)
	}
	of := codec.ForName[float32](u.Payload.Codec)
	squares, failed, err := 0.0, error(nil), error(nil)
	if codec.DecodesOnlyWhole(of) {
		c.unpackMutex.Lock() // one at a time is in memory
		squares, failed, err = checkWhole(of, size, data, want.elements)
		c.unpackMutex.Unlock()
	} else {
		squares, failed, err = checkVectorPiecewise(of, size, data)
	}
	norm := math.Sqrt(squares)
	switch {
	case err != nil:
		return 0, 0, err
	case errors.Is(failed, wire.ErrNotFinite):
		return 0, wire.RefuseNotFinite, nil
	case failed != nil:
		return 0, wire.RefuseWrongSchema, nil
	case want.maxNorm > 0 && norm > want.maxNorm:
		return 0, wire.RefuseNorm, nil
	}
	return norm, 0, nil
}

// checkWhole returns ‖v‖₂² of a vector that can only be unpacked whole, why it cannot be, or that it cannot be read.
func checkWhole(of codec.Codec[float32], size int64, data transfer.Storage, elements int) (squares float64,
	failed, err error) {
	payload := make([]byte, 0, size)
	if err := forEachPiece(size, data, func(piece []byte) { payload = append(payload, piece...) }); err != nil {
		return 0, nil, err
	}
	v := make([]float32, elements)
	failed = of.Decode(v, payload)
	return round.AddSquares(0, v), failed, nil
}

// checkVectorPiecewise is checkWhole for a vector that it unpacks piece by piece.
func checkVectorPiecewise(of codec.Codec[float32], size int64, data transfer.Storage) (squares float64, failed,
	err error) {
	elements, unit := of.Unit()
	v := make([]float32, (min(int(size), checked)/unit+1)*elements) // a part that stays in the processor's cache
	take := func(units []byte, n int) {
		failed = cmp.Or(failed, of.Decode(v[:n], units))
		squares = round.AddSquares(squares, v[:n])
	}
	rest := make([]byte, 0, unit) // of a unit in which a piece ends
	err = forEachPiece(size, data, func(piece []byte) {
		if len(rest) > 0 {
			n := min(unit-len(rest), len(piece))
			rest, piece = append(rest, piece[:n]...), piece[n:]
			if len(rest) < unit {
				return
			}
			take(rest, elements)
			rest = rest[:0]
		}
		for len(piece) >= unit {
			part := piece[:min(len(piece), checked)/unit*unit]
			take(part, len(part)/unit*elements)
			piece = piece[len(part):]
		}
		rest = append(rest, piece...)
	})
	if len(rest) > 0 { // the last one may have fewer elements
		n := 1
		for n < elements && of.Size(n+1) <= len(rest) { // of int4 perhaps one more than it has, which is 0
			n++
		}
		take(rest, n)
	}
	return squares, failed, err
}

// checkMoments is checkUpdate for an update of a statistics round: some data with the claimed number of rows must have
// these moments.
func checkMoments(u *wire.Update, size int64, data transfer.Storage) (float64, wire.UpdateRefusalReason, error) {
	payload := make([]byte, 0, size)
	if err := forEachPiece(size, data, func(piece []byte) { payload = append(payload, piece...) }); err != nil {
		return 0, 0, err
	}
	v := make([]float64, len(payload)/8)
	err := wire.DecodeVector(v, payload)
	switch {
	case errors.Is(err, wire.ErrNotFinite):
		return 0, wire.RefuseNotFinite, nil
	case err != nil:
		return 0, wire.RefuseWrongSchema, nil
	}
	m, err := learner.MomentsFromVector(v)
	if err == nil {
		err = m.CheckPlausible(u.Samples)
	}
	if err != nil {
		return 0, wire.RefuseMalformed, err
	}
	return math.Sqrt(round.AddSquares(0, v)), 0, nil
}

// forEachPiece passes a payload to take, piece by piece.
func forEachPiece(size int64, data transfer.Storage, take func(piece []byte)) error {
	if m, ok := data.(*transfer.MemoryStorage); ok {
		for _, piece := range m.Pieces() {
			take(piece)
		}
		return nil
	}
	r := io.NewSectionReader(data.(io.ReaderAt), 0, size)
	piece := make([]byte, wire.MaxChunk/8*8)
	for {
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			take(piece[:n])
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

var (
	receivingTransfers = observe.Gauge("transfers_receiving", "Updates whose chunks are coming in.")
	queuedTransfers    = observe.Gauge("transfers_queued",
		"Updates that were offered and wait for their turn.")
	bufferedTransferBytes = observe.Gauge("transfers_buffered_bytes",
		"Length of the updates that are received or being stored, in memory or in files.")
)

// UploadStatusChanged: the number or the size of the uploads has changed.
type UploadStatusChanged struct{ Receiving, Queued, BufferedBytes int }

// Describe implements observe.Event.
func (e UploadStatusChanged) Describe(d *observe.Description) {
	d.Set(receivingTransfers, float64(e.Receiving))
	d.Set(queuedTransfers, float64(e.Queued))
	d.Set(bufferedTransferBytes, float64(e.BufferedBytes))
}
