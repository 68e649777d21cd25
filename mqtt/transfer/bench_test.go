package transfer

import (
	"fmt"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// BenchmarkReceiver measures receiving small updates one after the other, from the manifest to the release of the
// buffer space.
func BenchmarkReceiver(b *testing.B) {
	for name, n := range map[string]int{"inline": 4 << 10, "2 chunks": 100 << 10, "17 chunks": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			blob := blobOf(1, n)
			o := offer("a", manifestOf(blob))
			if n <= wire.MaxInlineUpdate {
				o.InlinePayload = blob
			}
			var chunks []ChunkReceived
			for k := range o.Manifest.ChunkDigests {
				chunks = append(chunks, chunkOf("a", o.Manifest, blob, k))
			}
			r := openingReceiver(NewUpdateReceiver(DefaultReceiverConfig()))
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				done := len(r.Step(epoch, o)) == 1 && o.InlinePayload != nil
				for _, c := range chunks {
					for _, e := range r.Step(epoch, c) {
						_, complete := e.(UpdateComplete)
						done = done || complete
					}
				}
				r.Step(epoch, UpdateReleased{"a"})
				r.Step(epoch, DropAgent{"a"})
				if !done {
					b.Fatal("not complete")
				}
			}
		})
	}
}

// BenchmarkReceiverQueue measures receiving updates of two chunks that many agents offer at once. The host calls
// Deadline after each step.
func BenchmarkReceiverQueue(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			blob := blobOf(1, 100<<10)
			m := manifestOf(blob)
			for b.Loop() {
				r := openingReceiver(NewUpdateReceiver(DefaultReceiverConfig()))
				var granted []GrantCredit
				step := func(ev ReceiveEvent) {
					for _, e := range r.Step(epoch, ev) {
						if g, ok := e.(GrantCredit); ok {
							granted = append(granted, g)
						}
					}
					r.Deadline()
				}
				for i := range n {
					step(UpdateOffer{Agent: wire.AgentID(fmt.Sprintf("agent-%06d", i)), AgentBootEpoch: 1, Manifest: m})
				}
				for k := 0; k < len(granted); k++ {
					a := granted[k].Agent
					step(chunkOf(a, m, blob, 0))
					step(chunkOf(a, m, blob, 1))
					step(UpdateReleased{a})
				}
				if len(granted) != n {
					b.Fatalf("%d of %d were received", len(granted), n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/agent")
		})
	}
}
