package training

import (
	"encoding/binary"
	"errors"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

var littleEndian = binary.LittleEndian

// saveBlock saves an endless block to disk. The parameter taken is the number of local steps taken so far, and x
// contains the parameters.
func saveBlock(folder state.Folder, b *endlessBlock, taken uint64, x []float32) error {
	e := &b.trainEffect
	edges := wire.Invitation{Agent: "me", StepSizeWeight: e.StepWeight, MixingBlockRound: e.MixingBlockRound,
		Peers: e.MixingPeers}
	out := littleEndian.AppendUint64(nil, uint64(e.Position.Run))
	out = littleEndian.AppendUint64(out, e.Announcement.Seed)
	out = littleEndian.AppendUint64(out, e.Announcement.PriorLocalSteps+taken)
	out = littleEndian.AppendUint32(out, uint32(b.localStepCount))
	for _, part := range [][]byte{edges.Body(), b.prepared.CompiledTask.Task.AppendEncoding(nil)} {
		out = littleEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return folder.SaveFile(state.Block, wire.AppendVector(out, x))
}

// savedBlock is an endless block that an earlier process has saved.
type savedBlock struct {
	*endlessBlock // loaded block; nil if no block was saved
	encodedTask   []byte
	parameters    []float32
}

func loadBlock(folder state.Folder) (b savedBlock, err error) {
	err = folder.LoadFile(state.Block, func(in []byte) (err error) {
		b, err = parseBlock(in)
		return err
	})
	return b, err
}

func parseBlock(in []byte) (b savedBlock, err error) {
	take := func(n int) (part []byte) {
		if err == nil && (n < 0 || n > len(in)) { // The number n may be negative on 32-bit systems.
			err = errors.New("the file is too short")
		}
		if err != nil {
			return make([]byte, 28)
		}
		part, in = in[:n], in[n:]
		return part
	}
	head := take(28)
	edges := take(int(littleEndian.Uint32(take(4))))
	encodedTask := take(int(littleEndian.Uint32(take(4))))
	if err != nil {
		return savedBlock{}, err
	}
	m, err := wire.DecodeInvitation(edges)
	x := make([]float32, len(in)/4)
	if err == nil {
		err = wire.DecodeVector(x, in)
	}
	if err != nil {
		return savedBlock{}, err
	}
	e := agentround.StartTraining{MixingBlockRound: m.MixingBlockRound, StepWeight: m.StepSizeWeight,
		MixingPeers: m.Peers}
	e.Position.Run = wire.RunID(littleEndian.Uint64(head))
	e.Announcement.Seed, e.Announcement.PriorLocalSteps = littleEndian.Uint64(head[8:]), littleEndian.Uint64(head[16:])
	return savedBlock{&endlessBlock{trainEffect: e, taskDigest: wire.BlobDigest(encodedTask),
		localStepCount: int(littleEndian.Uint32(head[24:]))}, encodedTask, x}, nil
}
