package coordinator

import (
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
)

// The broker must return each blob that is announced, as it would to an agent: it may take a message and not retain it.
// The check downloads each new blob once, and all blobs after each connect. It runs beside the announcement: agents
// that find a part missing ask again.

const (
	// checkTimeout is the time without a new part after which the others count as missing.
	checkTimeout = 5 * time.Second
	// checkPatience is how many such times a check of a blob lasts that was just published and may still be on its way.
	// A check of any other blob lasts one.
	checkPatience = 3
	// checkAgain is the first wait before a blob that the broker does not keep is published again; it doubles up to
	// checkSeldom.
	checkAgain  = 2 * time.Second
	checkSeldom = time.Minute
	// checkPause is the least time between two checks that agents ask for.
	checkPause = 30 * time.Second
)

// post is a blob at the broker.
type post struct {
	blob
	have     []bool    // chunks that the broker has returned
	owed     []owed    // parts, to agents
	sent     bool      // all was published, perhaps by an earlier process
	justSent bool      // in this session, since the last uncheck
	checked  bool      // the broker has returned all of it
	fails    int       // checks in a row that found nothing new
	again    time.Time // nothing of it is published again before
}

func newPost(x blob, sent bool) *post {
	return &post{blob: x, have: make([]bool, x.chunks()), owed: make([]owed, x.chunks()+1), sent: sent}
}

// missing yields the parts that the broker has not returned.
func (p *post) missing(topics mqtt.Topics) iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		for k := range p.chunks() + 1 {
			if (k == len(p.have) || !p.have[k]) && !yield(retained(p.message(topics, k))) {
				return
			}
		}
	}
}

// message returns the topic and the payload of a part.
func (p *post) message(topics mqtt.Topics, k int) (topic string, payload []byte) {
	name, payload := p.part(k)
	return topics.Blob(p.ref.Hash.Topic(), name), payload
}

func (p *post) lacks() (n int) {
	for _, ok := range p.have {
		if !ok {
			n++
		}
	}
	return n
}

// Has, Put and Close make a post the storage of its own check. It keeps only the fact that a chunk came.
func (p *post) Has(k int) bool            { return p.have[k] }
func (p *post) Put(k int, _ []byte) error { p.have[k] = true; return nil }
func (p *post) Close() error              { return nil }

// reading is a post that is being read back.
type reading struct {
	*post
	puller *transfer.Puller
	lacked int
	began  time.Time
	asked  map[string]bool // topics
}

// uncheck has all blobs read back again.
func (b *publisher) uncheck() {
	for _, p := range b.posts {
		p.checked, p.justSent, p.fails, p.again = false, false, 0, time.Time{}
		clear(p.have)
	}
}

// recheck has all blobs read back again because an agent cannot get them, once in checkPause at most, and not while one
// is known to be missing, so that its waits grow.
func (b *publisher) recheck(now time.Time) {
	failing := slices.ContainsFunc(b.posts, func(p *post) bool { return p.fails > 0 })
	if b.reading == nil && b.next == nil && !failing && now.Sub(b.rechecked) >= checkPause {
		b.rechecked = now
		b.uncheck()
		b.pump(now)
	}
}

func (b *publisher) read(now time.Time, p *post) {
	cfg := transfer.DefaultPullerConfig()
	cfg.First, cfg.Timeout, cfg.Attempts, cfg.Seal = checkTimeout, checkTimeout, 1, p.seal
	if p.justSent {
		cfg.Attempts = checkPatience
	}
	b.reading = &reading{p, transfer.NewPuller(cfg, p.ref, b.rng), p.lacks(), now, map[string]bool{}}
	b.stepReading(now, transfer.Start{})
}

func (b *publisher) stopReading() {
	if b.reading != nil {
		b.stepReading(time.Time{}, transfer.Cancel{})
		b.reading = nil
	}
}

func (b *publisher) tickReading(now time.Time) {
	if b.reading != nil {
		b.stepReading(now, transfer.Tick{})
	}
}

// take takes a part that came back. One without the retained flag is the coordinator's own publication: it only shows
// that the broker has the part by now, so the part is asked for again.
func (b *publisher) take(now time.Time, m mqtt.Message, hash, part string) {
	r := b.reading
	switch {
	case r == nil || r.ref.Hash.Topic() != hash || !r.asked[m.Topic]: // late, or of an earlier check
	case m.Retained:
		b.stepReading(now, transfer.Part{Name: part, Payload: m.Payload, Retained: true})
	default:
		b.conn.Subscribe(mqtt.AtMostOnce, m.Topic)
	}
}

// refused takes the broker's refusal of a filter, and reports whether the filter is the publisher's. The first refusal
// ends a check; the others of the same check follow it.
func (b *publisher) refused(now time.Time, filter string) bool {
	if kind, _, _, _, err := b.topics.Parse(filter); err != nil || kind != mqtt.KindBlob {
		return false
	}
	if r := b.reading; r != nil && r.asked[filter] {
		b.stopReading()
		b.failed(now, r, true)
	}
	return true
}

func (b *publisher) stepReading(now time.Time, ev transfer.PullEvent) {
	r := b.reading
	for _, e := range r.puller.Step(now, ev) {
		switch e := e.(type) {
		case transfer.Subscribe:
			topics := b.partTopics(r, e.Parts)
			for _, t := range topics {
				r.asked[t] = true
			}
			b.conn.Subscribe(mqtt.AtMostOnce, topics...)
		case transfer.Unsubscribe:
			topics := b.partTopics(r, e.Parts)
			for _, t := range topics {
				delete(r.asked, t)
			}
			b.conn.Unsubscribe(topics...)
		case transfer.Open:
			b.stepReading(now, transfer.Opened{Blob: r.ref.Hash, Data: r.post})
		case transfer.Done:
			b.reading = nil
			r.checked, r.fails = true, 0
			b.tell(BlobChecked{Blob: r.ref.Hash, Parts: len(r.have) + 1, Took: now.Sub(r.began)})
			b.pump(now)
		case transfer.Failed:
			b.reading = nil
			b.failed(now, r, false)
		}
	}
}

func (b *publisher) partTopics(r *reading, parts []string) []string {
	topics := slices.Clone(parts)
	for i, part := range topics {
		topics[i] = b.topics.Blob(r.ref.Hash.Topic(), part)
	}
	return topics
}

// failed has the parts published again that the broker has not returned: at once if they may never have been sent to
// it, or if this check has found more of them; else after a wait that doubles.
func (b *publisher) failed(now time.Time, r *reading, refused bool) {
	again := r.justSent && r.lacks() == r.lacked || refused
	r.sent, r.justSent, r.again = false, false, time.Time{}
	if again {
		wait := min(checkAgain<<min(r.fails, 10), checkSeldom)
		r.fails++
		r.again = now.Add(wait)
		b.tell(BlobChecked{Blob: r.ref.Hash, Parts: len(r.have) + 1, Missing: r.lacks() + 1, Refused: refused,
			Took: now.Sub(r.began), Again: wait})
	}
	b.pump(now)
}
