package coordinator

import (
	"iter"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
)

// A blob is announced once the broker has returned all of it, as it would to an
// agent: a broker acknowledges what it will not retain. The check moves the blob
// to the coordinator once for each announcement of a new blob, and for each
// connect.

const (
	// checkTimeout is the time without a part until parts are taken for missing.
	checkTimeout = 5 * time.Second
	// checkPatience is how often that may pass, of what was just published and
	// may still be on its way; of what should be there long since, once.
	checkPatience = 3
	// checkAgain is the first wait of a blob that the broker does not keep; it
	// doubles up to checkSeldom.
	checkAgain  = 2 * time.Second
	checkSeldom = time.Minute
	// checkPause is the time between two checks that agents ask for.
	checkPause = 30 * time.Second
)

// post is a blob at the broker.
type post struct {
	blob
	have    []bool // chunks that the broker has returned
	said    bool   // all was published, perhaps by an earlier process
	anew    bool   // in this session, since the last doubt
	checked bool   // the broker has returned all of it
	fails   int    // checks in a row that found nothing new
}

func newPost(x blob, said bool) *post {
	return &post{blob: x, have: make([]bool, x.chunks()), said: said}
}

// missing yields the parts that the broker has not returned.
func (p *post) missing(topics mqtt.Topics) iter.Seq[mqtt.Message] {
	return func(yield func(mqtt.Message) bool) {
		k := 0
		for part, payload := range p.parts {
			if k >= len(p.have) || !p.have[k] {
				if !yield(retained(topics.Blob(p.ref.Hash.Topic(), part), payload)) {
					return
				}
			}
			k++
		}
	}
}

func (p *post) lacks() (n int) {
	for _, ok := range p.have {
		if !ok {
			n++
		}
	}
	return n
}

// Has, Put and Close make a post the storage of its own reading back, which
// keeps nothing but the fact that a chunk came.
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

// doubt has all blobs read back again.
func (b *publisher) doubt() {
	for _, p := range b.posts {
		p.checked, p.anew, p.fails = false, false, 0
		clear(p.have)
	}
}

// suspect has the blobs read back again because an agent cannot get them, but
// not too often.
func (b *publisher) suspect(now time.Time) {
	if b.reading == nil && b.next == nil && now.Sub(b.suspected) >= checkPause {
		b.suspected = now
		b.doubt()
		b.pump(now)
	}
}

func (b *publisher) read(now time.Time, p *post) {
	cfg := transfer.DefaultPullerConfig()
	cfg.Timeout, cfg.Attempts = checkTimeout, 1
	if p.anew {
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

// take takes a part that came back. A part that comes as it is published is none
// that was retained; it shows that the broker has it by now, so it is asked for
// again.
func (b *publisher) take(now time.Time, m mqtt.Message, hash, part string) {
	r := b.reading
	switch {
	case r == nil || r.ref.Hash.Topic() != hash || !r.asked[m.Topic]: // late, or of an earlier check
	case m.Retained:
		b.stepReading(now, transfer.Part{Name: part, Payload: m.Payload})
	default:
		b.conn.Subscribe(mqtt.AtMostOnce, m.Topic)
	}
}

// refused takes the broker's word that a filter may not be read, and reports
// whether it was the publisher's.
func (b *publisher) refused(now time.Time, filter string) bool {
	r := b.reading
	if r == nil || !r.asked[filter] {
		return false
	}
	b.stopReading()
	b.failed(now, r, true)
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

// failed publishes again what the broker has not returned: at once, if it was
// perhaps never said to it, or if more of it comes back each time; else later
// and later.
func (b *publisher) failed(now time.Time, r *reading, refused bool) {
	again := r.anew && r.lacks() == r.lacked || refused
	r.said, r.anew = false, false
	if again {
		wait := min(checkAgain<<min(r.fails, 10), checkSeldom)
		r.fails++
		b.retry = now.Add(wait)
		b.tell(BlobChecked{Blob: r.ref.Hash, Parts: len(r.have) + 1, Missing: r.lacks() + 1, Refused: refused,
			Took: now.Sub(r.began), Again: wait})
	}
	b.pump(now)
}
