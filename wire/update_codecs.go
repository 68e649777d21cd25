package wire

import "github.com/fedmesh/fedmesh/spec"

// updateCodecSectionCodecs returns the sections for the update codecs that have no code in [codecCodes]. A message with
// such a codec contains the code of the codec raw and a section with the name of the codec. In a task, an agent that
// does not know the section, such as the Python agent, ignores it and sends raw updates.
func updateCodecSectionCodecs(c *spec.Codec, need UnknownSectionPolicy) []sectionCodec {
	return []sectionCodec{
		{"signs", need, func(w *writer) {
			if *c == spec.CodecSigns {
				w.u8(1)
			}
		}, func(r *reader) {
			r.enum("signs", 1)
			r.setCodecOfSection(c, spec.CodecSigns)
		}},
		{"top_k", need, func(w *writer) {
			if share, ok := c.TopKShare(); ok {
				w.f64(share)
			}
		}, func(r *reader) { r.setCodecOfSection(c, spec.TopKCodec(r.f64("top_k"))) }},
	}
}

// MayFallBackToRaw reports whether an agent that does not know codec c sends raw updates instead.
func MayFallBackToRaw(c spec.Codec) bool {
	return c != spec.CodecRaw && updateCodecByte(c) == codecCodes.codeOfValue(spec.CodecRaw)
}

// setCodecOfSection sets the codec from a section. At most one section may specify a codec.
func (r *reader) setCodecOfSection(c *spec.Codec, word spec.Codec) {
	if *c != spec.CodecRaw {
		r.failf("codecs %s and %s are both set: at most one is allowed", word, *c)
	}
	if err := word.Validate(); r.err == nil && err != nil {
		r.failf("codec: %w", err)
	}
	*c = word
}

// updateCodecByte returns the code of a codec. For a codec that is specified in a section, it returns the code of the
// codec raw.
func updateCodecByte(c spec.Codec) uint8 {
	if _, ok := c.TopKShare(); ok || c == spec.CodecSigns {
		c = spec.CodecRaw
	}
	return codecCodes.codeOfValue(c)
}
