package wire

import (
	"slices"

	"github.com/fedmesh/fedmesh/spec"
)

// enumCodes maps one-byte codes to the values of an enumeration. The code of a value is its index.
type enumCodes[W ~string] []W

// Codes of enumerations in messages, as defined in docs/PROTOCOL.md.
var (
	riskCodes = enumCodes[spec.LossKind]{1: spec.LossSquared, 2: spec.LossLogistic, 3: spec.LossSoftmax,
		4: spec.LossHuber}
	activationCodes = enumCodes[spec.Activation]{1: spec.ActivationTanh, 2: spec.ActivationReLU,
		3: spec.ActivationIdentity}
	exchangeCodes   = enumCodes[spec.ExchangeKind]{1: spec.ExchangeParameters, 2: spec.ExchangeGradient}
	noiseLawCodes   = enumCodes[spec.NoiseLaw]{0: spec.NoiseNone, 1: spec.NoiseGaussian, 2: spec.NoiseLaplace}
	resamplingCodes = enumCodes[spec.Resampling]{1: spec.ResampleMean, 2: spec.ResampleLast, 3: spec.ResampleMax,
		4: spec.ResampleMin,
		5: spec.ResampleSum, 6: spec.ResampleCount, 7: spec.ResampleHeld}
	valueTransformCodes = enumCodes[spec.ValueTransform]{1: spec.TransformNone, 2: spec.TransformLog1p}
	// Code 0 of the codec of snapshots means that agents do not mix.
	codecCodes = enumCodes[spec.Codec]{1: spec.CodecRaw, 2: spec.CodecBFloat16, 3: spec.CodecInt8,
		4: spec.CodecInt4}
)

// codeOfValue returns the code of a value, or 0 for an unknown value.
func (c enumCodes[W]) codeOfValue(word W) uint8 { return uint8(max(slices.Index(c, word), 0)) }

func (c enumCodes[W]) readValue(r *reader, field string) W {
	return c.valueOfCode(r.enum(field, c.lastCode()))
}

func (c enumCodes[W]) readOptionalValue(r *reader, field string) W {
	return c.valueOfCode(r.optionalEnum(field, c.lastCode()))
}

func (c enumCodes[W]) lastCode() uint8 { return uint8(len(c) - 1) }

// valueOfCode returns the value of a code, or "" for an invalid code.
func (c enumCodes[W]) valueOfCode(code uint8) W {
	if code > c.lastCode() {
		return ""
	}
	return c[code]
}

// ExchangeKindCode returns the code of an exchange, which journals also contain. It returns 0 for no exchange.
func ExchangeKindCode(e spec.ExchangeKind) uint8 { return exchangeCodes.codeOfValue(e) }

// ExchangeKindOfCode returns the exchange of a code, or "" for an invalid code.
func ExchangeKindOfCode(code uint8) spec.ExchangeKind { return exchangeCodes.valueOfCode(code) }
