package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// SetAgents replaces the list of agents and takes ownership of list. Agents that are no longer listed leave the round
// at once. An agent with a new key is treated as a new device. SetAgents returns an error if the owner goroutine does
// not respond before ctx ends.
func (c *Coordinator) SetAgents(ctx context.Context, list *enrolled.List) error {
	if err := c.ownerLoop.RunOnLoopContext(ctx, func() { c.replaceAgentList(list) }); err != nil {
		return fmt.Errorf("coordinator: cannot replace the list of agents: %w", errors.Join(err, list.Close()))
	}
	return nil
}

func (c *Coordinator) replaceAgentList(list *enrolled.List) {
	before, gone := c.messageChecker.ReplaceList(list, c.agentsWithRunState())
	c.keyring.HandleAgentListChange(list, before)
	if err := before.Close(); err != nil {
		c.cfg.Logger.Warn("cannot close the previous list of agents", "err", err)
	}
	c.messageChecker.RejectRemovedAgents(gone)
	c.forgetAgents(gone)
	c.cfg.Observer.Observe(AgentListChanged{ListedAgents: list.Len(), RemovedAgents: gone})
}

// ResetBootCounter resets the stored boot counter of an agent, for example after the agent lost its state folder. The
// coordinator then accepts the agent's next message. The error is ErrUnlisted, or reports that the owner goroutine did
// not respond before ctx ended.
func (c *Coordinator) ResetBootCounter(ctx context.Context, agent wire.AgentID) error {
	unlisted := false
	err := c.runOnOwnerLoop(ctx, func() {
		if unlisted = c.messageChecker.AgentKey(agent) == nil; !unlisted {
			c.forgetAgents([]wire.AgentID{agent})
		}
	})
	if err == nil && unlisted {
		err = fmt.Errorf("agent %s is %w", agent, ErrUnlisted)
	}
	return err
}

// forgetAgents discards the state of the given agents, which must be sorted, and removes them from the round.
func (c *Coordinator) forgetAgents(agents []wire.AgentID) {
	c.messageChecker.ForgetAgents(agents)
	for _, a := range agents {
		c.keyring.ForgetAgentKeys(a)
		c.duplicateGuard.ForgetAheadAgent(a)
	}
	c.revokeAgentsInRound(agents)
}

// agentsWithRunState returns the agents for which the coordinator keeps state of the run: agents that follow an
// announcement later than the coordinator's own, participants of the current round, and suspended agents.
func (c *Coordinator) agentsWithRunState() []wire.AgentID {
	all := slices.Collect(c.duplicateGuard.AheadAgents())
	r := c.roundMachine.JournalRecord()
	for _, p := range r.Participants {
		all = append(all, p.Agent)
	}
	for _, s := range r.SidelinedAgents {
		all = append(all, s.Agent)
	}
	return all
}

func (c *Coordinator) revokeAgentsInRound(agents []wire.AgentID) {
	if len(agents) > 0 && c.duplicateGuard.HasWorkedOverLink() {
		c.stepMachine(round.AgentsRevoked{Agents: agents})
	}
}

// delistedParticipants returns the participants of the round in the journal that were removed from the list of agents
// while no coordinator was running.
func (c *Coordinator) delistedParticipants() (gone []wire.AgentID) {
	for _, p := range c.roundMachine.JournalRecord().Participants {
		if c.messageChecker.AgentKey(p.Agent) == nil {
			gone = append(gone, p.Agent)
		}
	}
	return gone
}

var enrolledAgents = observe.OptionalGauge("agents_enrolled",
	"Number of agents in the list of agents.")

// AgentListChanged reports that a list of agents took effect, at the start or later.
type AgentListChanged struct {
	ListedAgents int
	// RemovedAgents contains, in order, the agents that were removed or have a new key. It includes only agents that
	// have sent messages.
	RemovedAgents []wire.AgentID
}

// Describe implements observe.Event. It resolves the alert "two devices use one identity" of each removed agent.
func (e AgentListChanged) Describe(d *observe.EventDescription) {
	d.SetGauge(enrolledAgents, float64(e.ListedAgents))
	for _, agent := range e.RemovedAgents {
		d.ResolveCondition(devices.CloneConditionName(agent))
	}
}

// ErrUnlisted means that an agent is not in the list of agents.
var ErrUnlisted = errors.New("not in the list of agents")
