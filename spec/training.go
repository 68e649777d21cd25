package spec

import "slices"

// Exchange is what an agent sends in a training round.
type Exchange string

// The exchanges.
const (
	ExchangeParameters Exchange = "parameters" // Δ_k = ψ_k − w_{i−1} (lecture (11)–(12))
	ExchangeGradient   Exchange = "gradient"   // g_k at w_{i−1} (lecture (13)–(14))
)

var exchanges = []Exchange{ExchangeParameters, ExchangeGradient}

// UnmarshalText reads an exchange.
func (e *Exchange) UnmarshalText(text []byte) error { return read(e, text, exchanges) }

// Validate reports a word that is no exchange.
func (e Exchange) Validate() error { return check(e, exchanges) }

// NoiseLaw is the distribution of the perturbation v that is added to gradients (2nd-order (8)), independent over the
// coordinates and with mean zero. It helps to leave saddles; it protects nobody's data.
type NoiseLaw string

// The laws.
const (
	NoiseNone     NoiseLaw = "none"     // v = 0
	NoiseGaussian NoiseLaw = "gaussian" // v ~ N(0, σ²)
	NoiseLaplace  NoiseLaw = "laplace"  // density exp(−|v|/b)/(2b), of variance σ² = 2b²
)

var noiseLaws = []NoiseLaw{NoiseNone, NoiseGaussian, NoiseLaplace}

// UnmarshalText reads a law.
func (l *NoiseLaw) UnmarshalText(text []byte) error { return read(l, text, noiseLaws) }

// Validate reports a word that is no law.
func (l NoiseLaw) Validate() error { return check(l, noiseLaws) }

// Codec is how the elements of a vector travel: an update to the coordinator, parameters between neighbours.
type Codec string

// The codecs.
const (
	CodecRaw      Codec = "raw"      // as they are, little-endian
	CodecInt8     Codec = "int8"     // a byte each, and a float32 scale for 256 of them; rounded at random, unbiased
	CodecInt4     Codec = "int4"     // as int8, of half a byte each
	CodecSigns    Codec = "signs"    // a bit each, of the rotated vector, and one scale; biased
	CodecBFloat16 Codec = "bfloat16" // the upper half of float32, rounded to nearest even: 2 bytes, relative error 2⁻⁹
)

// Codecs returns all codecs.
func Codecs() []Codec { return slices.Clone(codecs) }

// MixingCodecs returns those for what neighbours mix: it must keep the mean of the agents where it is. A codec that is
// biased is for updates only.
func MixingCodecs() []Codec { return slices.Clone(mixing) }

var (
	mixing = []Codec{CodecRaw, CodecBFloat16, CodecInt8, CodecInt4}
	codecs = append(MixingCodecs(), CodecSigns)
)

// UnmarshalText reads a codec.
func (c *Codec) UnmarshalText(text []byte) error { return read(c, text, codecs) }

// Validate reports a word that is no codec.
func (c Codec) Validate() error { return check(c, codecs) }

// ValidateMixing reports a word that is no codec for what neighbours mix.
func (c Codec) ValidateMixing() error { return check(c, mixing) }
