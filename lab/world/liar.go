package world

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// Lie is the name of a protocol violation by a party with a valid key. The party sends false messages in addition to
// the correct messages of its program.
type Lie string

// lie describes when a false message is sent, and how the message is made.
type lie struct {
	beside wire.MessageType // type of the message that triggers the false message; 0 means any chunk of an update
	heard  bool             // true if a received message triggers the false message, false if a sent message does
	say    func(l *liar)
}

// Lies returns the names of all lies of the coordinator or of an agent.
func Lies(party int) []Lie { return slices.Sorted(maps.Keys(liesOf(party))) }

func liesOf(party int) map[Lie]lie {
	if party == Coordinator {
		return coordinatorLies()
	}
	return agentLies()
}

// liar makes the false messages of a party. It holds the message that triggers them, and collects the false messages to
// send.
type liar struct {
	p *party
	e wire.Envelope // triggering message, decrypted; zero for a chunk
	// key with which the triggering message was encrypted; zero if the message was not encrypted
	with   wire.SealKey
	to     wire.X25519PublicKey // first bytes of the recipient's public key, as in the encrypted message
	m      mqtt.Message
	before []mqtt.Message
}

// spread is the number of sequence numbers that are reserved for each correct message of a dishonest agent. False
// messages need separate numbers, because the coordinator accepts only increasing sequence numbers.
const spread = 16

// messagesWithLies returns the messages to send when the program of a party sends the message m. The false messages
// come first, followed by m.
func (p *party) messagesWithLies(m mqtt.Message) []mqtt.Message {
	if p.lies == nil {
		return []mqtt.Message{m}
	}
	l := p.liar(m)
	for _, name := range slices.Sorted(maps.Keys(p.lying)) {
		switch x := p.lies[name]; {
		case x.heard || x.beside != l.e.Type:
		case l.e.Type != 0 || isChunk(m):
			x.say(l)
		}
	}
	if l.e.Type == wire.TypeAnnouncement {
		p.kept = append(p.kept, m)
	}
	if p.number != Coordinator && l.e.Type != 0 {
		h := l.e.Header
		h.Sequence *= spread
		m.Payload = l.sign(h, l.e.Body)
		p.kept = append(p.kept[max(0, len(p.kept)-9):], m)
	}
	return append(l.before, m)
}

// answerWithLie publishes the false answers of a dishonest party to a message that the program of the party receives.
func (p *party) answerWithLie(m mqtt.Message) {
	if len(p.lying) == 0 {
		return
	}
	l := p.liar(m)
	for _, name := range slices.Sorted(maps.Keys(p.lying)) {
		if x := p.lies[name]; x.heard && x.beside == l.e.Type {
			x.say(l)
		}
	}
	for _, m := range l.before {
		p.w.broker.publish(m)
	}
}

func (p *party) liar(m mqtt.Message) *liar {
	l := &liar{p: p, m: m}
	said, err := wire.ParseEnvelope(m.Payload)
	if err != nil {
		return l
	}
	if l.e, l.with, err = p.w.revealed(m); said.Type == wire.TypeSealed && err == nil {
		copy(l.to[:], said.Body[:8])
	}
	return l
}

// sign signs a message and encrypts it with the same key as the triggering message.
func (l *liar) sign(h wire.Header, body []byte) []byte {
	if l.with != (wire.SealKey{}) && h.Type.MustBeSealed() {
		t := h.Type
		h.Type = wire.TypeSealed
		body = l.with.SealMessage(l.to, h, t, body)
	}
	return wire.SignEnvelopeWithScheme(signatures{l.p.w}, nil, h, body, l.p.key)
}

func isChunk(m mqtt.Message) bool {
	kind, _, _, part, _ := topics().ParseTopic(m.Topic)
	return kind == mqtt.KindUpdate && part != transfer.ManifestPartName
}

// seal adds a false message to l.before. Its header is the header of the triggering message, modified by the function
// change. Its body is the parameter body.
func (l *liar) seal(change func(h *wire.Header), body []byte) *mqtt.Message {
	h := l.e.Header
	h.Sender = l.p.id
	if l.p.number != Coordinator {
		h.Sequence = spread*h.Sequence - spread + 1 + uint64(len(l.before))
	}
	if change != nil {
		change(&h)
	}
	return l.raw(l.sign(h, body))
}

func (l *liar) raw(payload []byte) *mqtt.Message {
	m := l.m
	m.Payload, m.Retained = payload, false
	l.before = append(l.before, m)
	l.p.w.note("%s sent a false message: %s", l.p.id, describePayload(payload))
	return &l.before[len(l.before)-1]
}

// other returns a digest different from d.
func other(d wire.Digest) wire.Digest { return sha256.Sum256(d[:]) }

// otherBytes changes a manifest so that it describes content that does not exist.
func otherBytes(m *wire.Manifest) {
	m.ChunkDigests[0] = other(m.ChunkDigests[0])
	h := sha256.New()
	for _, d := range m.ChunkDigests {
		_, _ = h.Write(d[:])
	}
	m.Hash = wire.Digest(h.Sum(nil))
}

// somebody returns the id of an agent other than the liar.
func (l *liar) somebody() wire.AgentID {
	for _, p := range l.p.w.parties[1:] {
		if p != l.p {
			return p.id
		}
	}
	return l.p.id
}

// manifest returns a lie that changes an offered update and its manifest.
func manifest(change func(h *wire.Header, u *wire.Update)) lie {
	return lie{beside: wire.TypeUpdate, say: func(l *liar) {
		if u, err := wire.DecodeUpdate(l.e.Body); err == nil {
			h := l.e.Header
			change(&h, &u)
			l.seal(func(g *wire.Header) { g.Run, g.Round = h.Run, h.Round }, u.Body())
		}
	}}
}

// envelope returns a lie that changes the header of a hello.
func envelope(change func(l *liar, h *wire.Header)) lie {
	return lie{beside: wire.TypeHello, say: func(l *liar) {
		l.seal(func(h *wire.Header) { change(l, h) }, l.e.Body)
	}}
}

func agentLies() map[Lie]lie {
	return map[Lie]lie{
		"an update of another run":      manifest(func(h *wire.Header, _ *wire.Update) { h.Run-- }),
		"an update of a later round":    manifest(func(h *wire.Header, _ *wire.Update) { h.Round++ }),
		"an update of an earlier round": manifest(func(h *wire.Header, _ *wire.Update) { h.Round-- }),
		"an update of another base": manifest(func(_ *wire.Header,
			u *wire.Update) {
			u.BaseModelDigest = other(u.BaseModelDigest)
		}),
		"an update of another kind": manifest(func(_ *wire.Header, u *wire.Update) {
			u.Kind = wire.KindStatistics + wire.KindTraining - u.Kind
		}),
		"an update of another schema": manifest(func(_ *wire.Header, u *wire.Update) {
			u.PayloadManifest.VectorSchema = other(u.PayloadManifest.VectorSchema)
		}),
		"an update with a section": manifest(func(_ *wire.Header, u *wire.Update) {
			u.Extra = wire.UnknownSections{{Name: "later", UnknownPolicy: wire.DeclineUnknownSection, Body: []byte{1}}}
		}),
		"an update of other rows": manifest(func(_ *wire.Header, u *wire.Update) { u.Samples += 100 }),
		"an update of other bytes": manifest(func(_ *wire.Header, u *wire.Update) {
			otherBytes(&u.PayloadManifest)
		}),
		"an update under another's name": manifest(func(_ *wire.Header, u *wire.Update) {
			u.PayloadManifest.Hash[0] ^= 1
		}),
		"another update, after one was accepted": {beside: wire.TypeUpdateAccepted, heard: true,
			say: (*liar).offerAnotherUpdate},
		"chunks of noise": {say: func(l *liar) {
			p := bytes.Clone(l.m.Payload)
			p[len(p)-1] ^= 1
			l.raw(p)
			l.raw(p[:len(p)-1])
		}},
		"chunks of another's": {say: func(l *liar) {
			_, _, id, part, _ := topics().ParseTopic(l.m.Topic)
			l.raw(l.m.Payload).Topic = topics().UpdatePart(l.somebody(), id, part)
		}},
		"joins unasked": {beside: wire.TypeHello, say: func(l *liar) {
			if h, err := wire.DecodeHello(l.e.Body); err == nil {
				l.seal(func(h *wire.Header) { h.Type = wire.TypeInvitationAccepted },
					(&wire.InvitationAccepted{Announcement: other(h.FollowedAnnouncement)}).Body())
			}
		}},
		"declines an unknown announcement": {beside: wire.TypeInvitationAccepted, say: func(l *liar) {
			if m, err := wire.DecodeInvitationAccepted(l.e.Body); err == nil {
				l.seal(func(h *wire.Header) { h.Type = wire.TypeInvitationDeclined },
					(&wire.InvitationDeclined{Announcement: other(m.Announcement), Reason: wire.DeclineBadData}).Body())
			}
		}},
		"a hello to another announcement": {beside: wire.TypeHello, say: func(l *liar) {
			if m, err := wire.DecodeHello(l.e.Body); err == nil {
				m.FollowedAnnouncement = other(m.FollowedAnnouncement)
				l.seal(nil, m.Body())
			}
		}},
		"a hello from later":       envelope(func(_ *liar, h *wire.Header) { h.Round += 5 }),
		"from another federation":  envelope(func(_ *liar, h *wire.Header) { h.Federation = "other" }),
		"by another's name":        envelope(func(l *liar, h *wire.Header) { h.Sender = l.somebody() }),
		"with another's signature": {beside: wire.TypeHello, say: (*liar).asAnother},
		"by a stranger": {beside: wire.TypeHello, say: func(l *liar) {
			l.seal(func(h *wire.Header) { h.Sender = "stranger" },
				l.e.Body).Topic = topics().AgentToCoordinator("stranger")
		}},
		"what the coordinator says": envelope(func(_ *liar, h *wire.Header) { h.Type = wire.TypeUpdateAccepted }),
		"all once more": {beside: wire.TypeHello, say: func(l *liar) {
			for _, m := range l.p.kept {
				*l.raw(m.Payload) = m
			}
		}},
		"noise":           {beside: wire.TypeHello, say: func(l *liar) { l.raw(l.m.Payload[:100]) }},
		"another version": {beside: wire.TypeHello, say: (*liar).version},
	}
}

// offerAnotherUpdate offers a different update after the coordinator has accepted an update.
func (l *liar) offerAnotherUpdate() {
	for _, m := range slices.Backward(l.p.kept) {
		said := l.p.liar(m)
		u, err := wire.DecodeUpdate(said.e.Body)
		if err != nil || said.e.Type != wire.TypeUpdate {
			continue
		}
		otherBytes(&u.PayloadManifest)
		h := said.e.Header
		h.Sequence++
		l.raw(said.sign(h, u.Body())).Topic = m.Topic
		return
	}
}

// asAnother sends the triggering message with the id of another agent, on the topic of that agent.
func (l *liar) asAnother() {
	id := l.somebody()
	l.seal(func(h *wire.Header) { h.Sender = id }, l.e.Body).Topic = topics().AgentToCoordinator(id)
}

func (l *liar) version() {
	p := bytes.Clone(l.m.Payload)
	p[4]--
	l.raw(p)
}

// answer returns a lie of the coordinator: it sends a false answer when an agent offers an update.
func answer(t wire.MessageType, say func(h *wire.Header, update wire.Digest) []byte) lie {
	return lie{beside: wire.TypeUpdate, heard: true, say: func(l *liar) {
		u, err := wire.DecodeUpdate(l.e.Body)
		if err != nil {
			return
		}
		h := l.e.Header
		body := say(&h, u.PayloadManifest.Hash)
		m := l.seal(func(g *wire.Header) {
			g.Type, g.Run, g.Round, g.Epoch = t, h.Run, h.Round, l.p.w.check.announced.Epoch
		}, body)
		m.Topic = topics().CoordinatorToAgent(l.e.Sender)
	}}
}

func accepted(d wire.Digest) []byte { return (&wire.UpdateAccepted{Update: d}).Body() }

func refused(d wire.Digest) []byte {
	return (&wire.UpdateRefused{Update: d, Reason: wire.RefuseNormTooLarge}).Body()
}

// direct returns a lie of the coordinator: it changes the header of the message by which it accepts an update.
func direct(change func(h *wire.Header)) lie {
	return lie{beside: wire.TypeUpdateAccepted, say: func(l *liar) { l.seal(change, l.e.Body) }}
}

func coordinatorLies() map[Lie]lie {
	return map[Lie]lie{
		"accepts another update": answer(wire.TypeUpdateAccepted, func(_ *wire.Header, d wire.Digest) []byte {
			return accepted(other(d))
		}),
		"accepts for another round": answer(wire.TypeUpdateAccepted, func(h *wire.Header, d wire.Digest) []byte {
			h.Round++
			return accepted(d)
		}),
		"accepts for another run": answer(wire.TypeUpdateAccepted, func(h *wire.Header, d wire.Digest) []byte {
			h.Run++
			return accepted(d)
		}),
		"refuses another update": answer(wire.TypeUpdateRefused, func(_ *wire.Header, d wire.Digest) []byte {
			return refused(other(d))
		}),
		"refuses for another round": answer(wire.TypeUpdateRefused, func(h *wire.Header, d wire.Digest) []byte {
			h.Round--
			return refused(d)
		}),
		"refuses for another run": answer(wire.TypeUpdateRefused, func(h *wire.Header, d wire.Digest) []byte {
			h.Run--
			return refused(d)
		}),
		"lends chunks of another update": answer(wire.TypeChunkCredit, func(_ *wire.Header, d wire.Digest) []byte {
			return (&wire.ChunkCredit{Update: other(d), LeaseMillis: 1000, Chunks: []wire.ChunkRange{{First: 0,
				Last: 1}}}).Body()
		}),
		"lends chunks beyond the end": answer(wire.TypeChunkCredit, func(_ *wire.Header, d wire.Digest) []byte {
			return (&wire.ChunkCredit{Update: d, LeaseMillis: 1000, Chunks: []wire.ChunkRange{{First: 500,
				Last: 600}}}).Body()
		}),
		"invites to another announcement": invitation(func(m *wire.Invitation) {
			m.Announcement = other(m.Announcement)
		}),
		"invites another":         invitation(func(m *wire.Invitation) { m.Agent = "another" }),
		"from an older epoch":     direct(func(h *wire.Header) { h.Epoch-- }),
		"from another federation": direct(func(h *wire.Header) { h.Federation = "other" }),
		"by another's name":       direct(func(h *wire.Header) { h.Sender = "a0" }),
		"what agents say":         direct(func(h *wire.Header) { h.Type = wire.TypeMetricsReport }),
		"with another's signature": {beside: wire.TypeUpdateAccepted, say: func(l *liar) {
			l.raw(wire.SignEnvelopeWithScheme(signatures{l.p.w}, nil, l.e.Header, l.e.Body, l.p.w.parties[1].key))
		}},
		"an older announcement": {beside: wire.TypeInvitationAccepted, heard: true, say: func(l *liar) {
			for _, m := range l.p.kept[:max(0, len(l.p.kept)-1)] {
				l.toAgents(m)
			}
		}},
		"two announcements at one place": {beside: wire.TypeHello, heard: true, say: (*liar).twoAnnouncements},
	}
}

func invitation(change func(m *wire.Invitation)) lie {
	return lie{beside: wire.TypeInvitation, say: func(l *liar) {
		if m, err := wire.DecodeInvitation(l.e.Body); err == nil {
			change(&m)
			l.seal(nil, m.Body())
		}
	}}
}

// toAgents makes the broker, which colludes with the liar, deliver a message to agents only.
func (l *liar) toAgents(m mqtt.Message) {
	b := l.p.w.broker
	for _, a := range l.p.w.parties[1:] {
		if link := b.links[topics().ClientID(a.id)]; link != nil && l.p.w.check.obeyed[a.id] == l.p.w.check.announced {
			l.p.w.note("%s sent a false message: %s", l.p.id, describePayload(m.Payload))
			link.downward(m, mqtt.AtLeastOnce)
		}
	}
}

// twoAnnouncements sends a second announcement with the present position to agents that already follow the first
// announcement.
func (l *liar) twoAnnouncements() {
	m, ok := l.p.w.broker.retained[topics().Announcement()]
	if !ok {
		return
	}
	e, err := wire.ParseEnvelope(m.Payload)
	if err != nil {
		return
	}
	if a, err := wire.DecodeAnnouncement(e.Body); err == nil && wire.AnnouncementPositionOf(e.Header,
		&a) == l.p.w.check.announced {
		a.HelloSpreadMillis++
		m.Payload = wire.SignEnvelopeWithScheme(signatures{l.p.w}, nil, e.Header, a.Body(), l.p.key)
		l.toAgents(m)
	}
}
