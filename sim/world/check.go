package world

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/d2d"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// part is an agent's part in a round.
type part struct {
	run   wire.RunID
	round wire.RoundID
	agent wire.AgentID
}

// say is a message about an agent's part in a round, by the agent or the coordinator.
type say struct {
	part
	wire.Type
}

// ending is the end of an agent's part in a round, in one of its lives.
type ending struct {
	part
	*life
}

// check holds the parties to their promises. It knows what they say, what is on their disks and the facts they tell.
type check struct {
	w      *World
	schema wire.Schema // of a model

	closed, messages, balanced int // rounds, messages, blocks whose books were added up
	folds, drawings            int // models that were computed anew, draws that were made again
	refusedAbove               int // updates that were left out
	signed, verified           int // signatures

	record    round.Record                                        // the newest journal
	sets      map[wire.RoundID]map[wire.AgentID]round.Participant // what each closing round is to fold
	leftOut   map[wire.RoundID][]coordinator.UpdateLeftOut
	states    map[version]state      // of the server's optimiser
	accepted  map[part]wire.Digest   // as the coordinator has said
	announced wire.Order             // the newest
	digest    wire.Digest            // of that announcement
	digests   map[wire.Digest]bool   // of all
	payloads  map[wire.Digest][]byte // of updates that stood on an agent's disk

	opened    map[version]bool // rounds whose draw was looked at
	drawn     map[wire.RoundID][]wire.AgentID
	obeyed    map[wire.AgentID]wire.Order
	said      map[say]bool
	unfit     map[wire.AgentID]bool // those that have said hello, and that they cannot take part
	trainedBy map[part]*life
	ended     map[ending]bool
	books     map[wire.RoundID][]d2d.Books // of the agents that have ended a block
	restarted map[wire.RoundID]bool        // blocks during which an agent began again
	saved     map[wire.AgentID]part        // the update with which its life began
}

func newCheck(w *World) check {
	_, t := w.plan.configure()
	p, err := task.Compile[float32](t)
	if err != nil {
		panic(err)
	}
	return check{w: w, schema: p.Schema(wire.KindTraining), sets: map[wire.RoundID]map[wire.AgentID]round.Participant{},
		leftOut: map[wire.RoundID][]coordinator.UpdateLeftOut{}, states: map[version]state{},
		accepted: map[part]wire.Digest{}, ended: map[ending]bool{}, opened: map[version]bool{},
		digests: map[wire.Digest]bool{}, said: map[say]bool{}, unfit: map[wire.AgentID]bool{},
		payloads: map[wire.Digest][]byte{}, drawn: map[wire.RoundID][]wire.AgentID{},
		obeyed: map[wire.AgentID]wire.Order{}, trainedBy: map[part]*life{}, books: map[wire.RoundID][]d2d.Books{},
		restarted: map[wire.RoundID]bool{}, saved: map[wire.AgentID]part{}}
}

// body is the content of a record file, without its check sum.
func body(file []byte) []byte {
	const head, tail = 10, sha256.Size
	if len(file) < head+tail {
		return nil
	}
	return file[head : len(file)-tail]
}

// file is the content of a party's file now; nil if there is none.
func (d *disk) file(name string) []byte {
	f, last, err := handle{disk: d}.at(name)
	if err != nil {
		return nil
	}
	if n, ok := f.names[last].(*inode); ok {
		return n.data
	}
	return nil
}

func recordOf(file []byte) (r round.Record, ok bool) {
	var saved struct{ Record round.Record }
	err := json.Unmarshal(body(file), &saved)
	return saved.Record, err == nil
}

// started looks at the disk of a process that begins.
func (c *check) started(p *party) {
	if p.number == Coordinator { // the power may have taken a close that no one was told of
		r, _ := recordOf(p.disk.file(stateDir + "/run"))
		maps.DeleteFunc(c.sets, func(at wire.RoundID, _ map[wire.AgentID]round.Participant) bool {
			return at > r.Round || at == r.Round && r.Phase == round.CoordinatorCollecting
		})
		return
	}
	c.restarted[c.record.Round], c.restarted[c.record.Block] = true, true
	delete(c.saved, p.id)
	if at, ok := savedUpdate(p, p.disk.file(updateFile)); ok {
		c.saved[p.id] = at
	}
}

// wrote looks at a file that has got its name.
func (c *check) wrote(p *party, name string) {
	if b := body(p.disk.file(name)); name == updateFile && len(b) > 20 {
		payload := b[min(20+int(binary.LittleEndian.Uint32(b[16:])), len(b)):]
		c.payloads[wire.BlobDigest(payload)] = bytes.Clone(payload)
	}
	if p.number != Coordinator || name != stateDir+"/run" {
		return
	}
	r, ok := recordOf(p.disk.file(name))
	if !ok {
		return // what the disk has forgotten: the next start finds out
	}
	c.record = r
	c.draws(r)
	seen := map[wire.AgentID]bool{}
	for _, x := range r.Participants {
		if seen[x.Agent] {
			c.w.fail("%s is twice a participant of round %d", x.Agent, r.Round)
		}
		seen[x.Agent] = true
		if !slices.Contains(c.drawn[r.Round], x.Agent) {
			c.drawn[r.Round] = append(c.drawn[r.Round], x.Agent)
		}
	}
	if r.Phase != round.CoordinatorClosing {
		if c.sets[r.Round] != nil && r.Phase == round.CoordinatorCollecting {
			c.w.fail("round %d was to be folded, and is open again", r.Round)
		}
		return
	}
	set := map[wire.AgentID]round.Participant{}
	for _, x := range r.Participants {
		if !x.Accepted.IsZero() {
			set[x.Agent] = x
		}
	}
	c.sets[r.Round] = set
	for at, digest := range c.accepted {
		if at.run == r.Run && at.round == r.Round && set[at.agent].Accepted != digest {
			c.w.fail("round %d closes without the accepted update of %s", r.Round, at.agent)
		}
	}
}

// says looks at a message that a party hands to its connection.
func (c *check) says(p *party, m mqtt.Message) {
	c.messages++
	kind, about, _, name, _ := topics().Parse(m.Topic)
	sealed := kind == mqtt.KindRound || kind == mqtt.KindDirect || kind == mqtt.KindStatus ||
		kind == mqtt.KindUpdate && name == transfer.ManifestPart
	if len(m.Payload) == 0 || !sealed {
		return
	}
	e, err := wire.Open(m.Payload)
	if err != nil {
		c.w.fail("%s says what is no message: %v", p.id, err)
		return
	}
	c.said[say{part{e.Run, e.Round, about}, e.Type}] = true
	switch e.Type {
	case wire.TypeHello:
		if h, err := wire.DecodeHello(e.Body); err != nil || h.Unfit != 0 {
			c.unfit[about] = true
		} else if h.Announcement != (wire.Digest{}) && !c.digests[h.Announcement] {
			c.w.fail("%s obeys an announcement that was not made", about)
		}
	case wire.TypeAnnouncement:
		c.announce(p, e)
	case wire.TypeAccepted:
		c.accept(p, e, m.Topic)
	case wire.TypeRefused:
		c.refuse(e, m.Topic)
	case wire.TypeUpdate:
		if o := c.obeyed[p.id]; o.Run != e.Run || o.Round != e.Round || o.Phase != wire.PhaseOpen {
			c.w.fail("%s offers an update of round %d, and obeys %s", p.id, e.Round, o)
		}
		at, ok := savedUpdate(p, p.disk.durableFile(updateFile))
		if (!ok || at != part{e.Run, e.Round, p.id}) && !p.hadTrouble {
			c.w.fail("%s offers an update of round %d that it has not saved", p.id, e.Round)
		}
	}
}

// updateFile is an agent's, obeyedFile too.
const (
	updateFile = stateDir + "/update"
	obeyedFile = stateDir + "/obeyed"
)

// savedUpdate reads whose update is in a file.
func savedUpdate(p *party, file []byte) (part, bool) {
	b := body(file)
	if len(b) < 16 {
		return part{}, false
	}
	return part{wire.RunID(binary.LittleEndian.Uint64(b)), wire.RoundID(binary.LittleEndian.Uint64(b[8:])), p.id}, true
}

// announce holds an announcement against the one before, and against what a power cut would leave.
func (c *check) announce(p *party, e wire.Envelope) {
	a, err := wire.DecodeAnnouncement(e.Body)
	if err != nil {
		c.w.fail("an announcement is malformed: %v", err)
		return
	}
	order := wire.OrderOf(e.Header, &a)
	switch n := order.Compare(c.announced); {
	case n < 0 || n == 0 && e.Digest() != c.digest:
		c.w.fail("the announcement %s comes after %s", order, c.announced)
	case n > 0:
		c.w.note("announced %s", order)
	}
	c.announced, c.digest = order, e.Digest()
	c.digests[c.digest] = true
	r, ok := recordOf(p.disk.durableFile(stateDir + "/run"))
	if !ok || r.Run != order.Run || r.Round < order.Round || r.Round == order.Round && r.Attempt < order.Attempt {
		c.w.fail("announced is %s, and the journal on the disk stands at run %d round %d attempt %d", order, r.Run,
			r.Round, r.Attempt)
	}
	if a.Phase == wire.PhaseOpen && a.Kind == wire.KindTraining &&
		p.disk.durableFile(modelPath(r.Run, uint64(a.Version))) == nil {
		c.w.fail("announced is model %d, which is not on the disk", a.Version)
	}
}

func modelPath(run wire.RunID, version uint64) string {
	return fmt.Sprintf("%s/models/%d/model-%08d.safetensors", stateDir, run, version)
}

// accept holds an acceptance against what a power cut would leave.
func (c *check) accept(p *party, e wire.Envelope, topic string) {
	m, err := wire.DecodeAccepted(e.Body)
	_, to, _, _, _ := topics().Parse(topic)
	if err != nil {
		c.w.fail("an acceptance is malformed: %v", err)
		return
	}
	at := part{e.Run, e.Round, to}
	if before, ok := c.accepted[at]; ok && before != m.Update {
		c.w.fail("two updates of %s are accepted in round %d", to, e.Round)
	}
	c.accepted[at] = m.Update
	if set, closing := c.sets[e.Round]; closing {
		if set[to].Accepted != m.Update {
			c.w.fail("accepted is an update of %s for round %d, which is not in its set", to, e.Round)
		}
	} else if !p.disk.spooled(e.Round, m.Update) {
		c.w.fail("accepted is an update of %s for round %d, which is not on the disk", to, e.Round)
	}
}

// refuse: what was accepted is not refused while its round lasts.
func (c *check) refuse(e wire.Envelope, topic string) {
	m, err := wire.DecodeRefused(e.Body)
	_, to, _, _, _ := topics().Parse(topic)
	r := &c.record
	lasts := r.Round == e.Round && r.Phase != round.CoordinatorIdle && r.Phase != round.CoordinatorFinished
	if taken, ok := c.accepted[part{e.Run, e.Round, to}]; err != nil || lasts && ok && taken == m.Update {
		c.w.fail("refused is the accepted update of %s for round %d: %v", to, e.Round, err)
	}
}

// spooled reports whether a power cut would leave an update in a round's spool.
func (d *disk) spooled(r wire.RoundID, update wire.Digest) bool {
	f := d.root
	for _, name := range []string{stateDir, "spool", fmt.Sprint(r)} {
		next, ok := f.durable[name].(*folder)
		if !ok {
			return false
		}
		f = next
	}
	for _, node := range f.durable {
		if n, ok := node.(*inode); ok && bytes.Contains(n.safe, update[:]) {
			return true
		}
	}
	return false
}

// mixed takes the books of a block that has ended, in good order or not. When all agents of a block have ended it, each
// in the life in which it began it, the sum of their parameters is what their own steps made it.
func (c *check) mixed(l *life, r wire.RoundID, b d2d.Books) {
	if len(b.Edges) == 0 || l.dead || c.restarted[r] {
		return
	}
	all := append(c.books[r], b)
	c.books[r] = all
	if len(all) < c.w.plan.Agents {
		return
	}
	if drift, err := d2d.Drift(all); err == nil && drift > 1e-5 {
		c.w.fail("mixing in block %d has moved the sum of the parameters by %g of its length", r, drift)
	} else if err == nil {
		c.balanced++
	}
}

// end looks at what is left of a run that is finished: nothing grows, and nobody was left behind.
func (c *check) end() {
	if c.closed < c.w.plan.Rounds {
		c.w.fail("the run is finished after %d rounds, not %d", c.closed, c.w.plan.Rounds)
	}
	for _, p := range c.w.parties {
		if p.number == Coordinator {
			c.endCoordinator(p)
			continue
		}
		if c.obeyed[p.id] != c.announced {
			c.w.fail("%s stands at %s, and the run at %s", p.id, c.obeyed[p.id], c.announced)
		}
		for _, name := range []string{"update", "model.part"} {
			if p.disk.file(stateDir+"/"+name) != nil {
				c.w.fail("%s keeps %s of a run that is finished", p.id, name)
			}
		}
	}
	blobs := map[string]bool{}
	for topic := range c.w.broker.retained {
		if kind, _, hash, _, _ := topics().Parse(topic); kind == mqtt.KindBlob {
			blobs[hash] = true
		}
	}
	forgot := slices.ContainsFunc(c.w.plan.Faults, func(f Fault) bool { return f.Kind == BrokerEnd })
	if len(blobs) > 3 && !forgot {
		c.w.fail("the broker still retains %d blobs", len(blobs))
	}
}

func (c *check) endCoordinator(p *party) {
	next := wire.RoundID(1)
	for line := range bytes.Lines(p.disk.file(stateDir + "/history.jsonl")) {
		var h struct{ Round wire.RoundID }
		if err := json.Unmarshal(line, &h); err != nil || h.Round != next {
			c.w.fail("the history has a line of round %d, want round %d: %v", h.Round, next, err)
		}
		next++
	}
	if next != c.record.Round+1 {
		c.w.fail("the history ends before round %d, and the journal stands at round %d", next, c.record.Round)
	}
	f, err := handle{disk: p.disk}.folder(stateDir + "/spool")
	if err != nil || len(f.names) > 0 {
		c.w.fail("the spools of %d rounds are left, %v", len(f.names), err)
	}
	dir := path.Dir(modelPath(c.record.Run, 0))
	f, err = handle{disk: p.disk}.folder(dir)
	if err != nil {
		c.w.fail("the folder of models: %v", err)
		return
	}
	models := 0
	for name := range f.names {
		if strings.HasSuffix(name, ".safetensors") {
			models++
		}
	}
	if models > 2 {
		c.w.fail("%d models are kept, not 2", models)
	}
}
