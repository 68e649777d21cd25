package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ExchangeKind is the kind of vector that an agent sends in a training round.
type ExchangeKind string

// Kinds of vectors that agents can send.
const (
	// ExchangeParameters sends the parameter change Δ_k = ψ_k − w_{i−1} of agent k in round i: the parameters after
	// local training minus the base model (lecture, equations (11)–(12)).
	ExchangeParameters ExchangeKind = "parameters"
	// gradient g_k of agent k at the base model w_{i−1} of round i (lecture, equations (13)–(14)).
	ExchangeGradient ExchangeKind = "gradient"
)

var exchanges = []ExchangeKind{ExchangeParameters, ExchangeGradient}

// UnmarshalText parses an exchange kind.
func (e *ExchangeKind) UnmarshalText(text []byte) error { return parseEnum(e, text, exchanges) }

// Validate returns an error if the exchange kind is unknown.
func (e ExchangeKind) Validate() error { return checkEnum(e, exchanges) }

// NoiseLaw is the probability distribution of the noise that is added to gradients to escape saddle points (2nd-order
// paper, equation (8)). The noise has mean zero and independent coordinates, and it does not protect privacy.
type NoiseLaw string

// Noise distributions.
const (
	NoiseNone     NoiseLaw = "none"     // no noise is added
	NoiseGaussian NoiseLaw = "gaussian" // normal distribution with the variance σ²
	// Laplace distribution with the density exp(−|v|/b)/(2b) and the variance σ² = 2b².
	NoiseLaplace NoiseLaw = "laplace"
)

var noiseLaws = []NoiseLaw{NoiseNone, NoiseGaussian, NoiseLaplace}

// UnmarshalText parses a noise law.
func (l *NoiseLaw) UnmarshalText(text []byte) error { return parseEnum(l, text, noiseLaws) }

// Validate returns an error if the noise law is unknown.
func (l NoiseLaw) Validate() error { return checkEnum(l, noiseLaws) }

// Codec is the name of an encoding for the elements of a vector, such as an update or a neighbour's parameters.
type Codec string

// Names of the codecs.
const (
	CodecRaw Codec = "raw" // elements are sent unchanged, in little-endian order
	// CodecInt8 encodes each element in 1 byte, with a float32 scale per 256 elements. The codec is unbiased, because
	// it rounds elements at random.
	CodecInt8  Codec = "int8"
	CodecInt4  Codec = "int4"  // like int8, but with 4 bits per element
	CodecSigns Codec = "signs" // sign bit of each element of the randomly rotated vector, and one scale; biased
	// upper half of each float32, rounded to nearest even: 2 bytes per element, with a relative error of at most 2⁻⁹.
	CodecBFloat16 Codec = "bfloat16"
)

// topKCodecName is the prefix of the name of a codec that sends only the elements with the largest magnitudes. The
// share of these elements follows the prefix.
const topKCodecName = "top_k"

// TopKCodec returns the name of the codec that sends only the given share of the elements, selected by magnitude. The
// agent adds the other elements to its next update.
func TopKCodec(share float64) Codec {
	return Codec(topKCodecName + ":" + strconv.FormatFloat(share, 'g', -1, 64))
}

// defaultTopKShare is the share of the elements that the codec top_k sends if its name contains no share.
const defaultTopKShare = 0.05

// TopKShare returns the share of elements that a top_k codec sends. The result ok is false for other codecs, for shares
// that are not in canonical form, and for shares of one half or more, for which the codec raw is smaller.
func (c Codec) TopKShare() (share float64, ok bool) {
	text, found := strings.CutPrefix(string(c), topKCodecName+":")
	share, err := strconv.ParseFloat(text, 64)
	return share, found && err == nil && share > 0 && share < 0.5 && c == TopKCodec(share)
}

// Name returns the name of the codec without its parameter, such as "top_k".
func (c Codec) Name() string {
	name, _, _ := strings.Cut(string(c), ":")
	return name
}

// Codecs returns all codecs. The codec top_k has its default share.
func Codecs() []Codec { return slices.Clone(codecs) }

// CodecNames returns the names of all codecs.
func CodecNames() (names []string) {
	for _, c := range codecs {
		names = append(names, c.Name())
	}
	return names
}

// MixingCodecs returns the codecs with which neighbours may send parameters to each other. These codecs are unbiased,
// so that mixing preserves the mean of the agents' parameters.
func MixingCodecs() []Codec { return slices.Clone(mixingCodecs) }

var (
	mixingCodecs = []Codec{CodecRaw, CodecBFloat16, CodecInt8, CodecInt4}
	codecs       = append(MixingCodecs(), CodecSigns, TopKCodec(defaultTopKShare))
)

// UnmarshalText parses a codec name. The name top_k without a share gets the default share.
func (c *Codec) UnmarshalText(text []byte) error {
	word := Codec(text)
	if word == topKCodecName {
		word = TopKCodec(defaultTopKShare)
	}
	if number, found := strings.CutPrefix(string(word), topKCodecName+":"); found {
		if share, err := strconv.ParseFloat(number, 64); err == nil {
			word = TopKCodec(share) // Write the share in canonical form, so that equal codecs have equal names.
		}
	}
	if err := word.Validate(); err != nil {
		return err
	}
	*c = word
	return nil
}

// Validate returns an error if the codec is unknown.
func (c Codec) Validate() error {
	if _, ok := c.TopKShare(); ok {
		return nil
	}
	if c.Name() == topKCodecName {
		return fmt.Errorf("expected a share of the elements above 0 and below 0.5, such as %s, got %q",
			TopKCodec(defaultTopKShare),
			string(c))
	}
	return checkEnum(c, codecs)
}

// ValidateForMixing returns an error if neighbours cannot exchange parameters with this codec.
func (c Codec) ValidateForMixing() error { return checkEnum(c, mixingCodecs) }
