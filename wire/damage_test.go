package wire_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// The tests in this file damage golden messages (recorded valid messages).

// bodyOf returns the body that a golden message contains.
func bodyOf(f form, message []byte) []byte {
	if f.typ == 0 {
		return message
	}
	return message[envelopeSize:]
}

func TestEveryTruncationFails(t *testing.T) {
	for _, g := range goldens() {
		f := formNamed(t, g.form)
		message := readGolden(t, g.file)
		body := bodyOf(f, message)
		for n := range body {
			if _, err := f.decode(body[:n]); err == nil {
				t.Errorf("%s: %d of %d bytes of the body are read without an error", g.file, n, len(body))
			}
		}
		if f.typ == 0 {
			continue
		}
		for n := range message {
			if _, err := wire.ParseEnvelope(message[:n]); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s: %d of %d bytes open with error %v", g.file, n, len(message), err)
			}
		}
	}
}

func TestEveryTrailingByteFails(t *testing.T) {
	for _, g := range goldens() {
		f := formNamed(t, g.form)
		message := readGolden(t, g.file)
		for _, tail := range [][]byte{{0}, {0xff}, make([]byte, 32)} {
			if _, err := f.decode(append(bytes.Clone(bodyOf(f, message)), tail...)); err == nil {
				t.Errorf("%s: a body with %d bytes too many is read", g.file, len(tail))
			}
			if _, err := wire.ParseEnvelope(append(bytes.Clone(message), tail...)); f.typ != 0 &&
				!errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s: an envelope with %d bytes too many opens with error %v", g.file, len(tail), err)
			}
		}
	}
}

func TestEveryBitFlipFails(t *testing.T) {
	stride := 1
	if testing.Short() {
		stride = 9 // Damage only every ninth byte.
	}
	for _, g := range goldens() {
		if formNamed(t, g.form).typ == 0 {
			continue
		}
		message := readGolden(t, g.file)
		for bit := 0; bit < 8*len(message); bit += stride {
			message[bit/8] ^= 1 << (bit % 8)
			if e, err := wire.ParseEnvelope(message); err == nil && e.Verify(testPublicKey()) == nil {
				t.Errorf("%s: passes with bit %d of byte %d flipped", g.file, bit%8, bit/8)
			}
			message[bit/8] ^= 1 << (bit % 8)
		}
	}
}

// damage is a change of an envelope's header, with the error that ParseEnvelope must return.
type damage struct {
	name   string
	change func(p []byte)
	want   error
}

func damages() []damage {
	set := func(at int, b byte) func([]byte) { return func(p []byte) { p[at] = b } }
	return []damage{
		{"another magic", set(3, 'C'), wire.ErrMalformed},
		{"version 0", set(4, 0), wire.ErrProtocolVersion},
		{"version 1", set(4, 1), wire.ErrProtocolVersion},
		{"version 3", set(4, 3), wire.ErrProtocolVersion},
		{"type 0", set(5, 0), wire.ErrMalformed},
		{"type after the last", set(5, 19), wire.ErrMalformed},
		{"type 255", set(5, 255), wire.ErrMalformed},
		{"reserved field", set(6, 1), wire.ErrMalformed},
		{"reserved field, high byte", set(7, 1), wire.ErrMalformed},
		{"no federation", func(p []byte) { clear(p[8:40]) }, wire.ErrMalformed},
		{"federation in capitals", set(8, 'P'), wire.ErrMalformed},
		{"federation with a dash", set(9, '-'), wire.ErrMalformed},
		{"federation goes on after a zero", set(8+2, 0), wire.ErrMalformed},
		{"federation's last byte of padding", set(39, 'x'), wire.ErrMalformed},
		{"no sender", func(p []byte) { clear(p[40:88]) }, wire.ErrMalformed},
		{"sender with a slash", set(41, '/'), wire.ErrMalformed},
		{"sender goes on after a zero", set(40+2, 0), wire.ErrMalformed},
		{"sender's last byte of padding", set(87, 'x'), wire.ErrMalformed},
		{"body one shorter than said", func(p []byte) { p[120]++ }, wire.ErrMalformed},
		{"body one longer than said", func(p []byte) { p[120]-- }, wire.ErrMalformed},
		{"body of 4 GB said", func(p []byte) { copy(p[120:], "\xff\xff\xff\xff") }, wire.ErrMalformed},
		{"no root", set(124, 0), wire.ErrMalformed},
		{"hash of the body", func(p []byte) { p[128] ^= 1 }, wire.ErrMalformed},
	}
}

// TestOpenRefuses damages envelope headers and signs them again, so that only the invalid form can cause the error.
func TestOpenRefuses(t *testing.T) {
	for _, d := range damages() {
		p := readGolden(t, "update")
		d.change(p)
		resign(p, wire.TypeUpdate)
		if _, err := wire.ParseEnvelope(p); !errors.Is(err, d.want) {
			t.Errorf("%s: error %v, want %v", d.name, err, d.want)
		}
	}
	if _, err := wire.ParseEnvelope(make([]byte, wire.MaxMessage+1)); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("a message over MaxMessage opens with error %v", err)
	}
	if _, err := wire.ParseEnvelope(nil); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("no message opens with error %v", err)
	}
}

func TestNameErrorIsOneLine(t *testing.T) {
	p := readGolden(t, "update")
	p[39], p[87] = 'x', 'x'
	if _, err := wire.ParseEnvelope(p); err == nil || bytes.ContainsRune([]byte(err.Error()), '\n') {
		t.Errorf("error %q, want one line for the log", err)
	}
}

func TestChunkRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]byte) []byte
		want   error
	}{
		"another magic":   {func(p []byte) []byte { p[3] = 'M'; return p }, wire.ErrMalformed},
		"version 1":       {func(p []byte) []byte { p[4] = 1; return p }, wire.ErrProtocolVersion},
		"reserved byte 5": {func(p []byte) []byte { p[5] = 1; return p }, wire.ErrMalformed},
		"reserved byte 7": {func(p []byte) []byte { p[7] = 1; return p }, wire.ErrMalformed},
		// A blob has at most 1900 chunks, numbered from 0, so the chunk number 1900 (0x076c) is invalid.
		"number too large": {func(p []byte) []byte { p[8], p[9] = 0x6c, 0x07; return p }, wire.ErrMalformed},
		"length too small": {func(p []byte) []byte { p[12]--; return p }, wire.ErrMalformed},
		"length of 4 GB":   {func(p []byte) []byte { copy(p[12:], "\xff\xff\xff\xff"); return p }, wire.ErrMalformed},
		"another blob":     {func(p []byte) []byte { p[23] ^= 1; return p }, wire.ErrMalformed},
		"no payload": {func([]byte) []byte { return wire.AppendChunkMessage(nil, chunkBlob, 0, nil) },
			wire.ErrMalformed},
		"payload too large": {func([]byte) []byte {
			return wire.AppendChunkMessage(nil, chunkBlob, 0,
				make([]byte, wire.MaxChunkBytes+wire.SealOverhead+1))
		}, wire.ErrMalformed},
	} {
		if _, _, err := wire.DecodeChunkMessage(c.change(readGolden(t, "chunk")), chunkBlob); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}
