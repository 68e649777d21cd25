package wire

import (
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// codes is how the words of one type travel: each as one byte, its index.
type codes[W ~string] []W

// The bytes, as docs/PROTOCOL.md has them.
var (
	risks = codes[spec.Risk]{1: spec.RiskSquared, 2: spec.RiskLogistic, 3: spec.RiskSoftmax,
		4: spec.RiskHuber}
	activations = codes[spec.Activation]{1: spec.ActivationTanh, 2: spec.ActivationReLU, 3: spec.ActivationIdentity}
	exchanges   = codes[spec.Exchange]{1: spec.ExchangeParameters, 2: spec.ExchangeGradient}
	noiseLaws   = codes[spec.NoiseLaw]{0: spec.NoiseNone, 1: spec.NoiseGaussian, 2: spec.NoiseLaplace}
	joins       = codes[spec.Join]{1: spec.JoinMean, 2: spec.JoinLast, 3: spec.JoinMax, 4: spec.JoinMin,
		5: spec.JoinSum, 6: spec.JoinCount}
	scales = codes[spec.Scale]{1: spec.ScaleNone, 2: spec.ScaleLog1p}
	// 0 where agents do not mix.
	codecs = codes[spec.Codec]{1: spec.CodecRaw, 2: spec.CodecBFloat16, 3: spec.CodecInt8,
		4: spec.CodecInt4}
)

// code is a word's byte; 0 for a word without one.
func (c codes[W]) code(word W) uint8 { return uint8(max(slices.Index(c, word), 0)) }

// read reads a word that must be there.
func (c codes[W]) read(r *reader, field string) W { return c.word(r.enum(field, c.last())) }

// readOptional reads a word that may be absent.
func (c codes[W]) readOptional(r *reader, field string) W { return c.word(r.upTo(field, c.last())) }

func (c codes[W]) last() uint8 { return uint8(len(c) - 1) }

// word is that of a byte; a byte without one has made the reader fail.
func (c codes[W]) word(code uint8) W {
	if code > c.last() {
		return ""
	}
	return c[code]
}

// ExchangeByte returns the byte of an exchange, which journals hold too; 0 for none.
func ExchangeByte(e spec.Exchange) uint8 { return exchanges.code(e) }

// ExchangeOf returns the exchange of a byte; empty for a byte without one.
func ExchangeOf(code uint8) spec.Exchange { return exchanges.word(code) }
