package wire

import "github.com/fedmesh/fedmesh/spec"

// laterParts are the sections of the codecs of updates that came after version 2 was frozen: they have no byte among
// [codecs], but each a section of its own, in a task and in an update, whose byte says raw then. In a task a build that
// does not know the section passes over it and sends raw updates.
func laterParts(c *spec.Codec, need Need) []part {
	return []part{
		{"signs", need, func(w *writer) {
			if *c == spec.CodecSigns {
				w.u8(1)
			}
		}, func(r *reader) {
			r.enum("signs", 1)
			r.later(c, spec.CodecSigns)
		}},
		{"top_k", need, func(w *writer) {
			if share, ok := c.TopK(); ok {
				w.f64(share)
			}
		}, func(r *reader) { r.later(c, spec.TopK(r.f64("top_k"))) }},
	}
}

// MayPass reports whether a build that does not know the codec of a task passes over it, and sends raw updates.
func MayPass(c spec.Codec) bool {
	return c != spec.CodecRaw && codecByte(c) == codecs.code(spec.CodecRaw)
}

// later takes the codec of a section, the only one that names a codec.
func (r *reader) later(c *spec.Codec, word spec.Codec) {
	if *c != spec.CodecRaw {
		r.failf("codec %s beside the codec %s", word, *c)
	}
	if err := word.Validate(); r.err == nil && err != nil {
		r.failf("codec: %w", err)
	}
	*c = word
}

// codecByte is a codec's byte: that of raw where a section names it.
func codecByte(c spec.Codec) uint8 {
	if _, ok := c.TopK(); ok || c == spec.CodecSigns {
		c = spec.CodecRaw
	}
	return codecs.code(c)
}
