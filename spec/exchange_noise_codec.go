package spec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ExchangeKind is what an agent sends in a training round.
type ExchangeKind string

// The exchanges.
const (
	ExchangeParameters ExchangeKind = "parameters" // Δ_k = ψ_k − w_{i−1} (lecture (11)–(12))
	ExchangeGradient   ExchangeKind = "gradient"   // g_k at w_{i−1} (lecture (13)–(14))
)

var exchanges = []ExchangeKind{ExchangeParameters, ExchangeGradient}

// UnmarshalText reads an exchange.
func (e *ExchangeKind) UnmarshalText(text []byte) error { return parseEnum(e, text, exchanges) }

// Validate reports a word that is no exchange.
func (e ExchangeKind) Validate() error { return checkEnum(e, exchanges) }

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
func (l *NoiseLaw) UnmarshalText(text []byte) error { return parseEnum(l, text, noiseLaws) }

// Validate reports a word that is no law.
func (l NoiseLaw) Validate() error { return checkEnum(l, noiseLaws) }

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

// topKCodecName is the name of the codec that sends the elements with the largest magnitudes; the word has the share of
// them.
const topKCodecName = "top_k"

// TopKCodec is the word of the codec that sends a share of the elements, those with the largest magnitudes, with their
// indices. The agent keeps the rest for its next update.
func TopKCodec(share float64) Codec {
	return Codec(topKCodecName + ":" + strconv.FormatFloat(share, 'g', -1, 64))
}

// defaultTopKShare is the share of top_k without one.
const defaultTopKShare = 0.05

// TopKShare returns the share of the elements that the codec top_k sends. ok is false for other codecs, for a share of
// one half or more, where the codec raw needs fewer bytes, and for a share that is not in canonical form.
func (c Codec) TopKShare() (share float64, ok bool) {
	text, found := strings.CutPrefix(string(c), topKCodecName+":")
	share, err := strconv.ParseFloat(text, 64)
	return share, found && err == nil && share > 0 && share < 0.5 && c == TopKCodec(share)
}

// Name is the word without its number.
func (c Codec) Name() string {
	name, _, _ := strings.Cut(string(c), ":")
	return name
}

// Codecs returns all codecs; of top_k, that with the usual share.
func Codecs() []Codec { return slices.Clone(codecs) }

// CodecNames returns the names of all codecs.
func CodecNames() (names []string) {
	for _, c := range codecs {
		names = append(names, c.Name())
	}
	return names
}

// MixingCodecs returns those for what neighbours mix: it must keep the mean of the agents where it is. A codec that is
// biased is for updates only.
func MixingCodecs() []Codec { return slices.Clone(mixingCodecs) }

var (
	mixingCodecs = []Codec{CodecRaw, CodecBFloat16, CodecInt8, CodecInt4}
	codecs       = append(MixingCodecs(), CodecSigns, TopKCodec(defaultTopKShare))
)

// UnmarshalText reads a codec: top_k alone has the usual share.
func (c *Codec) UnmarshalText(text []byte) error {
	word := Codec(text)
	if word == topKCodecName {
		word = TopKCodec(defaultTopKShare)
	}
	if number, found := strings.CutPrefix(string(word), topKCodecName+":"); found {
		if share, err := strconv.ParseFloat(number, 64); err == nil {
			word = TopKCodec(share) // as it is compared
		}
	}
	if err := word.Validate(); err != nil {
		return err
	}
	*c = word
	return nil
}

// Validate reports a word that is no codec.
func (c Codec) Validate() error {
	if _, ok := c.TopKShare(); ok {
		return nil
	}
	if c.Name() == topKCodecName {
		return fmt.Errorf("want a share of the elements above 0 and below 0.5, such as %s, got %q",
			TopKCodec(defaultTopKShare),
			string(c))
	}
	return checkEnum(c, codecs)
}

// ValidateForMixing reports a word that is no codec for what neighbours mix.
func (c Codec) ValidateForMixing() error { return checkEnum(c, mixingCodecs) }
