package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/wire"
)

// trainedUpdate is a trained update.
type trainedUpdate struct {
	wire.Update
	epoch            wire.Epoch
	run              wire.RunID
	round            wire.RoundID
	payload          []byte
	sequence         uint64 // of Agent.turns
	saved            bool   // it is on disk, or the disk has failed to take it
	saving           bool   // the owner has it written before it is sent
	cheapToRecompute bool   // it is made again rather than saved
	possiblySent     bool   // it may have come to the coordinator
	// Where the codec keeps a residual: what was to be sent, and what its elements are.
	uncompressed []float32
	residualLost bool // what was kept before counts no more
	schemaHash   wire.Digest
}

func (c *Config) state() state.Folder {
	return state.Folder{Disk: c.Disk, Dir: c.Dir, Volatile: c.Volatile, Observer: c.Observer}
}

var littleEndian = binary.LittleEndian

// The purposes of writes to the state folder (state.Write), as people read them while a write fails.
const (
	updateWrite        = "save the update"
	personalModelWrite = "save what of the model is the agent's own"
	// feedbackWrite is written before the update is removed, which contains the residual, too.
	feedbackWrite = "save what the codec has not sent"
	updateRemoval = "remove the old update"
)

// updateStore keeps one update, until its round is over. Blocks and jobs both save one, each in their own order: what
// comes late never takes the place of a later one.
type updateStore struct {
	slots *state.Slots

	mu             sync.Mutex
	newestSequence uint64 // of the newest update: earlier ones are not written
}

func (k *updateStore) save(u *trainedUpdate) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.sequence < k.newestSequence {
		return nil // its round is over
	}
	k.newestSequence = u.sequence
	return saveUpdate(k.slots, u)
}

// discardEarlier keeps the updates of all turns before this one away.
func (k *updateStore) discardEarlier(turn uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newestSequence = turn
}

// clear removes the update, with what has come of a model if asked, and keeps those of all turns before this one away.
func (k *updateStore) clear(c *Config, turn uint64, model bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.newestSequence = turn
	return removeRound(c, k.slots, model)
}

// saveUpdate writes an update.
func saveUpdate(s *state.Slots, u *trainedUpdate) error {
	body := u.Body()
	b := littleEndian.AppendUint64(nil, uint64(u.epoch))
	b = littleEndian.AppendUint64(b, uint64(u.run))
	b = littleEndian.AppendUint64(b, uint64(u.round))
	b = littleEndian.AppendUint32(b, uint32(len(body)))
	return s.Save(append(b, body...), u.payload, u.appendUncompressed())
}

// loadUpdate returns the update that an earlier process left, or nil.
func loadUpdate(s *state.Slots) (u *trainedUpdate, err error) {
	err = s.Load(func(b []byte) error {
		const head = 28
		if len(b) < head || int64(littleEndian.Uint32(b[head-4:])) > int64(len(b)-head) {
			return errors.New("too short")
		}
		n := head + int(littleEndian.Uint32(b[head-4:]))
		body, err := wire.DecodeUpdate(b[head:n])
		if err != nil {
			return err
		}
		end := int64(n) + int64(body.Payload.Length)
		_, kept := body.Payload.Codec.TopKShare()
		if end != int64(len(b)) && !kept || end > int64(len(b)) {
			return fmt.Errorf("the payload has %d bytes, want %d", len(b)-n, body.Payload.Length)
		}
		u = &trainedUpdate{Update: body, epoch: wire.Epoch(littleEndian.Uint64(b)),
			run:   wire.RunID(littleEndian.Uint64(b[8:])),
			round: wire.RoundID(littleEndian.Uint64(b[16:])), payload: b[n:end], saved: true, possiblySent: true}
		return u.readUncompressed(b[end:])
	})
	return u, err
}

// saveBlock keeps a block without an end, with the number of local steps taken.
func saveBlock(c *Config, b *endlessBlock, taken uint64, x []float32) error {
	e := &b.trainEffect
	edges := wire.Invitation{Agent: "me", StepWeight: e.StepWeight, BlockRound: e.EdgeBlockRound, Peers: e.MixingPeers}
	out := littleEndian.AppendUint64(nil, uint64(e.Position.Run))
	out = littleEndian.AppendUint64(out, e.Announcement.Seed)
	out = littleEndian.AppendUint64(out, e.Announcement.StepOffset+taken)
	out = littleEndian.AppendUint32(out, uint32(b.steps))
	for _, part := range [][]byte{edges.Body(), b.p.CompiledTask.Task.Append(nil)} {
		out = littleEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return c.state().Save(state.Block, wire.AppendVector(out, x))
}

// loadBlock returns the block that an earlier process was in, its task and its parameters; nil if there was none.
func loadBlock(c *Config) (b *endlessBlock, blob []byte, x []float32, err error) {
	err = c.state().Load(state.Block, func(in []byte) (err error) {
		b, blob, x, err = parseBlock(in)
		return err
	})
	return b, blob, x, err
}

func parseBlock(in []byte) (b *endlessBlock, blob []byte, x []float32, err error) {
	take := func(n int) (part []byte) {
		if err == nil && (n < 0 || n > len(in)) { // below 0 where int has 32 bits
			err = errors.New("too short")
		}
		if err != nil {
			return make([]byte, 28)
		}
		part, in = in[:n], in[n:]
		return part
	}
	head := take(28)
	edges := take(int(littleEndian.Uint32(take(4))))
	blob = take(int(littleEndian.Uint32(take(4))))
	if err != nil {
		return nil, nil, nil, err
	}
	m, err := wire.DecodeInvitation(edges)
	x = make([]float32, len(in)/4)
	if err == nil {
		err = wire.DecodeVector(x, in)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	b = &endlessBlock{task: wire.BlobDigest(blob), steps: int(littleEndian.Uint32(head[24:]))}
	b.trainEffect.Position.Run, b.trainEffect.EdgeBlockRound, b.trainEffect.StepWeight,
		b.trainEffect.MixingPeers = wire.RunID(littleEndian.Uint64(head)), m.BlockRound, m.StepWeight, m.Peers
	b.trainEffect.Announcement.Seed, b.trainEffect.Announcement.StepOffset = littleEndian.Uint64(head[8:]),
		littleEndian.Uint64(head[16:])
	return b, blob, x, nil
}

// removeRound removes what was kept for a round that is over, with what has come of a model.
func removeRound(c *Config, s *state.Slots, model bool) error {
	err := s.Clear()
	if model {
		err = errors.Join(err, c.state().Remove(fetch.Model.FileName()))
	}
	return err
}
