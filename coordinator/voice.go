package coordinator

import (
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// voice signs what the coordinator says.
type voice struct {
	cfg      *Config
	epoch    wire.Epoch
	sequence uint64
}

func (v *voice) seal(t wire.Type, run wire.RunID, round wire.RoundID, body []byte) []byte {
	v.sequence++
	return wire.Seal(nil, wire.Header{
		Type: t, Federation: v.cfg.Federation, Sender: wire.CoordinatorID, Epoch: v.epoch,
		Run: run, Round: round, Sequence: v.sequence,
	}, body, v.cfg.Key)
}

// tell sends a message about a round to one agent. What is lost is said again:
// invitations by the machine's timer, answers when the agent asks again.
func (c *Coordinator) tell(agent wire.AgentID, t wire.Type, run wire.RunID, round wire.RoundID, body []byte) {
	err := c.conn.Publish(mqtt.Message{
		Topic: c.cfg.Topics.Device(agent), Payload: c.voice.seal(t, run, round, body), QoS: mqtt.AtMostOnce,
	})
	if err != nil && c.up {
		c.cfg.Logger.Debug("message not sent; what matters is repeated", "agent", agent, "type", t, "err", err)
	}
}
