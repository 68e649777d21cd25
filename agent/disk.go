package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// update is a trained update.
type update struct {
	wire.Update
	epoch   wire.Epoch
	run     wire.RunID
	round   wire.RoundID
	payload []byte
	turn    uint64 // of Agent.turns
	saved   bool   // it is on disk, or the disk has failed to take it
	saving  bool   // the owner has it written before it is sent
	cheap   bool   // it is made again rather than saved
	offered bool   // it may have come to the coordinator
	// Where the codec keeps a residual: what was to be sent, and what its elements are.
	whole []float32
	lost  bool // what was kept before counts no more
	basis wire.Digest
}

const (
	obeyedFile = "obeyed"
	updateFile = "update"
	blockFile  = "block"
	// unsentFile is what the codec has not sent.
	unsentFile = "unsent"
	// fileVersion is of the block, which holds what travels too; it rises with the protocol's.
	fileVersion = 2
	// slotVersion is of what is kept in slots. Builds that had none wrote version 2.
	slotVersion = 3
)

// The slots of an agent. An update needs one copy: when one is written, nobody needs that before it.
func (c *Config) placeSlots() *store.Slots  { return c.Disk.Slots(filepath.Join(c.Dir, obeyedFile), 2) }
func (c *Config) updateSlots() *store.Slots { return c.Disk.Slots(filepath.Join(c.Dir, updateFile), 1) }

func (c *Config) path(name string) string { return filepath.Join(c.Dir, name) }

var le = binary.LittleEndian

// saveObeyed keeps the place of the last announcement that was obeyed.
func saveObeyed(s *store.Slots, o wire.Order, d wire.Digest) error {
	b := le.AppendUint32(nil, uint32(o.Root))
	b = le.AppendUint64(b, uint64(o.Epoch))
	b = le.AppendUint64(b, uint64(o.Run))
	b = le.AppendUint64(b, uint64(o.Round))
	b = le.AppendUint32(b, uint32(o.Attempt))
	b = append(b, byte(o.Phase))
	return s.Save(slotVersion, append(b, d[:]...))
}

// loadObeyed returns that place; zero if there is none.
func loadObeyed(c *Config, s *store.Slots) (o wire.Order, d wire.Digest, err error) {
	err = c.slot(s, obeyedFile, 256, func(b []byte) error {
		if len(b) != 33+len(d) {
			return fmt.Errorf("%d bytes, want %d", len(b), 33+len(d))
		}
		o = wire.Order{
			Root: wire.Root(le.Uint32(b)), Epoch: wire.Epoch(le.Uint64(b[4:])), Run: wire.RunID(le.Uint64(b[12:])),
			Round: wire.RoundID(le.Uint64(b[20:])), Attempt: wire.Attempt(le.Uint32(b[28:])), Phase: wire.Phase(b[32]),
		}
		d = wire.Digest(b[33:])
		return nil
	})
	return o, d, err
}

// keeper keeps one update, until its round is over. Blocks and jobs both save one, each in their own order: what comes
// late never takes the place of a later one.
type keeper struct {
	slots *store.Slots

	mu   sync.Mutex
	turn uint64 // of the newest update: earlier ones are not written
}

func (k *keeper) save(u *update) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u.turn < k.turn {
		return nil // its round is over
	}
	k.turn = u.turn
	return saveUpdate(k.slots, u)
}

// pass keeps the updates of all turns before this one away.
func (k *keeper) pass(turn uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn = turn
}

// clear removes the update, with what has come of a model if asked, and keeps those of all turns before this one away.
func (k *keeper) clear(c *Config, turn uint64, model bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turn = turn
	return removeRound(c, k.slots, model)
}

// saveUpdate writes an update.
func saveUpdate(s *store.Slots, u *update) error {
	body := u.Body()
	b := le.AppendUint64(nil, uint64(u.epoch))
	b = le.AppendUint64(b, uint64(u.run))
	b = le.AppendUint64(b, uint64(u.round))
	b = le.AppendUint32(b, uint32(len(body)))
	return s.Save(slotVersion, append(b, body...), u.payload, u.appendWhole())
}

// loadUpdate returns the update that an earlier process left, or nil.
func loadUpdate(c *Config, s *store.Slots) (u *update, err error) {
	err = c.slot(s, updateFile, 2*wire.MaxBlob+wire.MaxMessage, func(b []byte) error {
		const head = 28
		if len(b) < head || int64(le.Uint32(b[head-4:])) > int64(len(b)-head) {
			return errors.New("too short")
		}
		n := head + int(le.Uint32(b[head-4:]))
		body, err := wire.DecodeUpdate(b[head:n])
		if err != nil {
			return err
		}
		end := int64(n) + int64(body.Payload.Length)
		_, kept := body.Payload.Codec.TopK()
		if end != int64(len(b)) && !kept || end > int64(len(b)) {
			return fmt.Errorf("the payload has %d bytes, want %d", len(b)-n, body.Payload.Length)
		}
		u = &update{Update: body, epoch: wire.Epoch(le.Uint64(b)), run: wire.RunID(le.Uint64(b[8:])),
			round: wire.RoundID(le.Uint64(b[16:])), payload: b[n:end], saved: true, offered: true}
		return u.readWhole(b[end:])
	})
	return u, err
}

// saveBlock keeps a block without an end, with the number of local steps taken.
func saveBlock(c *Config, b *endless, taken uint64, x []float32) error {
	e := &b.e
	edges := wire.Invitation{Agent: "me", Weight: e.Weight, Block: e.Block, Peers: e.Peers}
	out := le.AppendUint64(nil, uint64(e.Order.Run))
	out = le.AppendUint64(out, e.Announcement.Seed)
	out = le.AppendUint64(out, e.Announcement.Offset+taken)
	out = le.AppendUint32(out, uint32(b.steps))
	for _, part := range [][]byte{edges.Body(), b.p.problem.Task.Append(nil)} {
		out = le.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return c.Disk.SaveRecord(filepath.Join(c.Dir, blockFile), fileVersion, wire.AppendVector(out, x))
}

// loadBlock returns the block that an earlier process was in, its task and its parameters; nil if there was none.
func loadBlock(c *Config) (b *endless, blob []byte, x []float32, err error) {
	const most = 2*wire.MaxBlob + wire.MaxMessage // a task and a model
	err = c.record(blockFile, fileVersion, most, func(in []byte) (err error) {
		b, blob, x, err = parseBlock(in)
		return err
	})
	return b, blob, x, err
}

func parseBlock(in []byte) (b *endless, blob []byte, x []float32, err error) {
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
	edges := take(int(le.Uint32(take(4))))
	blob = take(int(le.Uint32(take(4))))
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
	b = &endless{task: wire.BlobDigest(blob), steps: int(le.Uint32(head[24:]))}
	b.e.Order.Run, b.e.Block, b.e.Weight, b.e.Peers = wire.RunID(le.Uint64(head)), m.Block, m.Weight, m.Peers
	b.e.Announcement.Seed, b.e.Announcement.Offset = le.Uint64(head[8:]), le.Uint64(head[16:])
	return b, blob, x, nil
}

// file is the name of the file into which a large blob is pulled. Its chunks are held against their hashes.
func (w purpose) file() string {
	return [...]string{purposeTask: "task.part", purposeModel: "model.part",
		purposeFile: "file.part"}[w]
}

func (w purpose) path(dir string) string { return filepath.Join(dir, w.file()) }

// removeRound removes what was kept for a round that is over, with what has come of a model.
func removeRound(c *Config, s *store.Slots, model bool) error {
	err := s.Clear()
	if model {
		err = errors.Join(err, c.remove(purposeModel.file()))
	}
	return err
}

// readBlob reads a blob that was pulled, piece by piece, in whole elements of a vector. In memory its pieces are the
// chunks, which were held against their hashes when they came. A file is checked against the sums of these chunks,
// since it may have changed on the disk.
func readBlob(ref wire.BlobRef, data transfer.Storage, take func(at int, piece []byte) error) (err error) {
	defer func() { err = errors.Join(err, data.Close()) }()
	at := 0
	if m, ok := data.(*transfer.Memory); ok {
		for _, piece := range m.Pieces() {
			if err := take(at, piece); err != nil {
				return err
			}
			at += len(piece)
		}
		return nil
	}
	f := data.(*store.Partial)
	r := io.NewSectionReader(f, 0, int64(ref.Length))
	sum, piece := f.Sum(), make([]byte, min(int(ref.Length), wire.MaxChunk))
	for ; at < int(ref.Length); at += len(piece) {
		piece = piece[:min(len(piece), int(ref.Length)-at)]
		if _, err := io.ReadFull(r, piece); err != nil {
			return err
		}
		_, _ = sum.Write(piece) // never fails
		if err := take(at, piece); err != nil {
			return err
		}
	}
	if sum.Check() != nil {
		return transfer.ErrCorrupt
	}
	return nil
}
