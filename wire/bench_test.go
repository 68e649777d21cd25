package wire_test

import (
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

func BenchmarkSeal(b *testing.B) {
	g := openAnnouncement()
	h, body, key := withType(g.header, wire.TypeAnnouncement), g.value.(*wire.Announcement).Body(), testKey()
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		dst = wire.SignEnvelope(dst[:0], h, body, key)
	}
}

func BenchmarkOpenVerify(b *testing.B) {
	p, key := readGolden(b, "announcement_open"), testPublicKey()
	b.ReportAllocs()
	for b.Loop() {
		e, err := wire.ParseEnvelope(p)
		if err != nil {
			b.Fatal(err)
		}
		if err := e.Verify(key); err != nil {
			b.Fatal(err)
		}
	}
}

const benchElements = 100_000

func BenchmarkAppendVector(b *testing.B) {
	v := make([]float32, benchElements)
	var dst []byte
	b.SetBytes(4 * benchElements)
	b.ReportAllocs()
	for b.Loop() {
		dst = wire.AppendVector(dst[:0], v)
	}
}

func BenchmarkDecodeVector(b *testing.B) {
	v := make([]float32, benchElements)
	p := wire.AppendVector(nil, v)
	b.SetBytes(4 * benchElements)
	b.ReportAllocs()
	for b.Loop() {
		if err := wire.DecodeVector(v, p); err != nil {
			b.Fatal(err)
		}
	}
}
