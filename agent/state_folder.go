package agent

import (
	"encoding/binary"
	"errors"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/wire"
)

func (c *Config) state() state.Folder {
	return state.Folder{Disk: c.Disk, Dir: c.Dir, Volatile: c.Volatile, Observer: c.Observer}
}

var littleEndian = binary.LittleEndian

// personalModelWrite is the purpose of a write to the state folder (state.Write).
const personalModelWrite = "save what of the model is the agent's own"

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
