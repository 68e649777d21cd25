package wire

import (
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// enumCodes is how the words of one type travel: each as one byte, its index.
type enumCodes[W ~string] []W

// The bytes, as docs/PROTOCOL.md has them.
var (
	riskCodes = enumCodes[spec.LossKind]{1: spec.LossSquared, 2: spec.LossLogistic, 3: spec.LossSoftmax,
		4: spec.LossHuber}
	activationCodes = enumCodes[spec.Activation]{1: spec.ActivationTanh, 2: spec.ActivationReLU,
		3: spec.ActivationIdentity}
	exchangeCodes   = enumCodes[spec.ExchangeKind]{1: spec.ExchangeParameters, 2: spec.ExchangeGradient}
	noiseLawCodes   = enumCodes[spec.NoiseLaw]{0: spec.NoiseNone, 1: spec.NoiseGaussian, 2: spec.NoiseLaplace}
	resamplingCodes = enumCodes[spec.Resampling]{1: spec.ResampleMean, 2: spec.ResampleLast, 3: spec.ResampleMax,
		4: spec.ResampleMin,
		5: spec.ResampleSum, 6: spec.ResampleCount}
	valueTransformCodes = enumCodes[spec.ValueTransform]{1: spec.TransformNone, 2: spec.TransformLog1p}
	// 0 where agents do not mix.
	codecCodes = enumCodes[spec.Codec]{1: spec.CodecRaw, 2: spec.CodecBFloat16, 3: spec.CodecInt8,
		4: spec.CodecInt4}
)

// codeOfValue is a word's byte; 0 for a word without one.
func (c enumCodes[W]) codeOfValue(word W) uint8 { return uint8(max(slices.Index(c, word), 0)) }

// read reads a word that must be there.
func (c enumCodes[W]) readValue(r *reader, field string) W {
	return c.valueOfCode(r.enum(field, c.lastCode()))
}

// readOptionalValue reads a word that may be absent.
func (c enumCodes[W]) readOptionalValue(r *reader, field string) W {
	return c.valueOfCode(r.optionalEnum(field, c.lastCode()))
}

func (c enumCodes[W]) lastCode() uint8 { return uint8(len(c) - 1) }

// valueOfCode is that of a byte; a byte without one has made the reader fail.
func (c enumCodes[W]) valueOfCode(code uint8) W {
	if code > c.lastCode() {
		return ""
	}
	return c[code]
}

// ExchangeKindCode returns the byte of an exchange, which journals hold too; 0 for none.
func ExchangeKindCode(e spec.ExchangeKind) uint8 { return exchangeCodes.codeOfValue(e) }

// ExchangeKindOfCode returns the exchange of a byte; empty for a byte without one.
func ExchangeKindOfCode(code uint8) spec.ExchangeKind { return exchangeCodes.valueOfCode(code) }
