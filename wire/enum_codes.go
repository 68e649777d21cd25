package wire

import (
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// enumCodes is how the words of one type travel: each as one byte, its index.
type enumCodes[W ~string] []W

// The bytes, as docs/PROTOCOL.md has them.
var (
	risks = enumCodes[spec.Risk]{1: spec.RiskSquared, 2: spec.RiskLogistic, 3: spec.RiskSoftmax,
		4: spec.RiskHuber}
	activations = enumCodes[spec.Activation]{1: spec.ActivationTanh, 2: spec.ActivationReLU, 3: spec.ActivationIdentity}
	exchanges   = enumCodes[spec.Exchange]{1: spec.ExchangeParameters, 2: spec.ExchangeGradient}
	noiseLaws   = enumCodes[spec.NoiseLaw]{0: spec.NoiseNone, 1: spec.NoiseGaussian, 2: spec.NoiseLaplace}
	joins       = enumCodes[spec.Resampling]{1: spec.ResampleMean, 2: spec.ResampleLast, 3: spec.ResampleMax,
		4: spec.ResampleMin,
		5: spec.ResampleSum, 6: spec.ResampleCount}
	scales = enumCodes[spec.ValueTransform]{1: spec.ScaleNone, 2: spec.ScaleLog1p}
	// 0 where agents do not mix.
	codecs = enumCodes[spec.Codec]{1: spec.CodecRaw, 2: spec.CodecBFloat16, 3: spec.CodecInt8,
		4: spec.CodecInt4}
)

// code is a word's byte; 0 for a word without one.
func (c enumCodes[W]) code(word W) uint8 { return uint8(max(slices.Index(c, word), 0)) }

// read reads a word that must be there.
func (c enumCodes[W]) read(r *reader, field string) W { return c.word(r.enum(field, c.lastCode())) }

// readOptional reads a word that may be absent.
func (c enumCodes[W]) readOptional(r *reader, field string) W {
	return c.word(r.optionalEnum(field, c.lastCode()))
}

func (c enumCodes[W]) lastCode() uint8 { return uint8(len(c) - 1) }

// word is that of a byte; a byte without one has made the reader fail.
func (c enumCodes[W]) word(code uint8) W {
	if code > c.lastCode() {
		return ""
	}
	return c[code]
}

// ExchangeByte returns the byte of an exchange, which journals hold too; 0 for none.
func ExchangeByte(e spec.Exchange) uint8 { return exchanges.code(e) }

// ExchangeOf returns the exchange of a byte; empty for a byte without one.
func ExchangeOf(code uint8) spec.Exchange { return exchanges.word(code) }
