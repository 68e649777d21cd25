package world

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// end checks the state after the run. All parties must have reached the last position (run, round and attempt), and no
// files or messages may have accumulated.
func (c *invariantChecker) end() {
	if c.closed < c.w.plan.Rounds {
		c.w.fail("the run is finished after %d rounds, want %d", c.closed, c.w.plan.Rounds)
	}
	for _, p := range c.w.parties {
		if p.number == Coordinator {
			c.endCoordinator(p)
			continue
		}
		if c.obeyed[p.id] != c.announced {
			c.w.fail("%s is at position %s, but the run is at %s", p.id, c.obeyed[p.id], c.announced)
		}
		// Compare the hashes, because two model versions may have identical parameters.
		if at, last := c.predicts(p), uint64(c.record.Plan.BaseModelVersion); c.w.plan.Predicts && at.version != last &&
			c.models[at] != c.models[version{c.record.Run, last}] && c.worse[p.id] != (version{c.record.Run, last}) {
			c.w.fail("%s predicts with model %d at the end, want model %d", p.id, at.version, last)
		}
		if _, _, _, ok := updateOf(p.disk.file, p.id); ok || p.disk.file(stateDir+"/model.part") != nil {
			c.w.fail("%s still has an update or a model of the finished run", p.id)
		}
	}
	for at := range c.unsettled {
		// An agent that has not offered its update knows that it missed the round, so it needs no message.
		if !c.w.agent(at.agent).hadTrouble && c.said[participationMessage{at, wire.TypeUpdate}] {
			c.w.fail("%s received no fate for its update of round %d", at.agent, at.round)
		}
	}
	blobs := map[string]bool{}
	for topic := range c.w.broker.retained {
		if kind, _, hash, _, _ := topics().ParseTopic(topic); kind == mqtt.KindBlob {
			blobs[hash] = true
		}
	}
	forgot := slices.ContainsFunc(c.w.plan.Faults, func(f Fault) bool { return f.Kind == BrokerEnd })
	if len(blobs) > 3 && !forgot {
		c.w.fail("the broker still retains %d blobs", len(blobs))
	}
}

func (c *invariantChecker) endCoordinator(p *party) {
	c.endHistory(p)
	if last := (version{c.record.Run, uint64(c.record.Plan.BaseModelVersion)}); c.w.plan.Evaluates > 0 &&
		c.lastEvaluated != last {
		c.w.fail("the last evaluated model is %d, want %d", c.lastEvaluated.version, last.version)
	}
	f, err := handle{disk: p.disk}.folder(stateDir + "/spool")
	if err != nil || len(f.names) > 0 {
		c.w.fail("the spools of %d rounds remain: %v", len(f.names), err)
	}
	f, err = handle{disk: p.disk}.folder(fmt.Sprintf("%s/models/%d", stateDir, c.record.Run))
	if err != nil {
		c.w.fail("cannot read the folder of models: %v", err)
		return
	}
	models := 0
	for name := range f.names {
		// Ignore files that a power cut damaged and that the program has moved aside.
		if strings.HasSuffix(name, ".safetensors") && !strings.Contains(name, ".aside-") {
			models++
		}
	}
	if models > 2 {
		c.w.fail("%d models are stored, want at most 2", models)
	}
}

// endHistory checks that the history has one line per round, in order, and one line per evaluated model.
func (c *invariantChecker) endHistory(p *party) {
	next, evaluated := wire.RoundID(1), uint64(0)
	for line := range bytes.Lines(p.disk.file(stateDir + "/history.jsonl")) {
		var h struct {
			Round   wire.RoundID
			Kind    string
			Version uint64
		}
		err := json.Unmarshal(line, &h)
		if h.Kind == runs.KindEvaluation {
			if h.Version <= evaluated {
				c.w.fail("the history contains the evaluation of model %d after model %d", h.Version, evaluated)
			}
			evaluated = h.Version
			continue
		}
		if err != nil || h.Round != next {
			c.w.fail("the history contains round %d, want round %d: %v", h.Round, next, err)
		}
		next++
	}
	if next != c.record.Round+1 {
		c.w.fail("the history ends before round %d, but the journal is at round %d", next, c.record.Round)
	}
}
