package transfer

import (
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// One small update after the other, from its manifest to the room given back.
func BenchmarkReceiver(b *testing.B) {
	for name, n := range map[string]int{"inline": 4 << 10, "2 chunks": 100 << 10, "17 chunks": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			blob := blobOf(1, n)
			o := offer("a", manifestOf(blob))
			if n <= wire.MaxInlineUpdate {
				o.Inline = blob
			}
			var chunks []Chunk
			for k := range o.Manifest.Chunks {
				chunks = append(chunks, chunkOf("a", o.Manifest, blob, k))
			}
			r := openingReceiver(NewReceiver(DefaultReceiverConfig()))
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				done := len(r.Step(epoch, o)) == 1 && o.Inline != nil
				for _, c := range chunks {
					for _, e := range r.Step(epoch, c) {
						_, complete := e.(Complete)
						done = done || complete
					}
				}
				r.Step(epoch, Stored{"a"})
				r.Step(epoch, Drop{"a"})
				if !done {
					b.Fatal("not complete")
				}
			}
		})
	}
}
