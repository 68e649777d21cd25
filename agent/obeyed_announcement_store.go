package agent

import (
	"encoding/binary"
	"fmt"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/round/agentround"
	"github.com/fedmesh/fedmesh/wire"
)

// obeyedAnnouncementStore saves the position of the last announcement that the agent has followed. After a restart the
// agent follows only later announcements.
type obeyedAnnouncementStore struct {
	core  *part.AgentCore
	slots *state.FileSlots
	// newest position that is not saved yet; nil if all positions are saved
	unsavedPosition *agentround.SaveAnnouncementPosition
}

// positionWrite describes the file write of an announcement's position (see state.RetriedWrite).
const positionWrite = "save the position of the announcement"

// savePosition saves a position in a background job. If a write is running, the newest position is written afterwards.
func (p *obeyedAnnouncementStore) savePosition(e agentround.SaveAnnouncementPosition) {
	p.core.WriteRetrier.ForgetFailedWrite(positionWrite)
	busy := p.unsavedPosition != nil
	if p.unsavedPosition = &e; !busy {
		p.startWrite(e)
	}
}

func (p *obeyedAnnouncementStore) startWrite(e agentround.SaveAnnouncementPosition) {
	write := func() error { return saveAnnouncementPosition(p.slots, e.Position, e.AnnouncementDigest) }
	p.core.Loop.Go(func() {
		err := write()
		p.core.Loop.RunOnLoop(func() {
			if newest := *p.unsavedPosition; newest != e {
				p.startWrite(newest)
				return
			}
			p.unsavedPosition = nil
			p.core.WriteRetrier.FinishWrite(state.RetriedWrite{Purpose: positionWrite, WriteFile: write,
				OnSuccess: func() {
					p.core.HandleRoundEvent(agentround.AnnouncementPositionSaved{
						Position: e.Position})
				}}, err)
			if err != nil { // The agent declines rounds until a write succeeds.
				p.core.HandleRoundEvent(agentround.AnnouncementPositionSaved{Position: e.Position, SaveFailed: true})
			}
		})
	})
}

// saveAnnouncementPosition saves the position and the digest of an announcement.
func saveAnnouncementPosition(s *state.FileSlots, o wire.AnnouncementPosition, d wire.Digest) error {
	b := binary.LittleEndian.AppendUint32(nil, uint32(o.Root))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Epoch))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Run))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Round))
	b = binary.LittleEndian.AppendUint32(b, uint32(o.Attempt))
	b = append(b, byte(o.Phase))
	return s.Save(append(b, d[:]...))
}

// loadAnnouncementPosition returns the saved position and digest of an announcement, or zero values if none are saved.
func loadAnnouncementPosition(s *state.FileSlots) (o wire.AnnouncementPosition, d wire.Digest, err error) {
	err = s.Load(func(b []byte) error {
		if len(b) != 33+len(d) {
			return fmt.Errorf("the content of the file has %d bytes instead of %d", len(b), 33+len(d))
		}
		o = wire.AnnouncementPosition{
			Root: wire.RootVersion(binary.LittleEndian.Uint32(b)), Epoch: wire.Epoch(binary.LittleEndian.Uint64(b[4:])),
			Run:     wire.RunID(binary.LittleEndian.Uint64(b[12:])),
			Round:   wire.RoundID(binary.LittleEndian.Uint64(b[20:])),
			Attempt: wire.RoundAttempt(binary.LittleEndian.Uint32(b[28:])),
			Phase:   wire.AnnouncementPhase(b[32]),
		}
		d = wire.Digest(b[33:])
		return nil
	})
	return o, d, err
}
