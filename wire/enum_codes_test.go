package wire_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// holds describes a task field that is encoded as a one-byte code. The element words[i] is the value with the code i.
// If no value has the code 0, that code is rejected.
type holds struct {
	field string
	words []string
	zero  bool // whether the code 0 is valid for the field
	set   func(t *wire.Task, word string)
	get   func(t *wire.Task) string
}

func wordFields() []holds {
	return []holds{
		{"risk", []string{"", "squared", "logistic", "softmax", "huber"}, false,
			func(t *wire.Task, w string) { t.Model.Risk = spec.LossKind(w) },
			func(t *wire.Task) string { return string(t.Model.Risk) }},
		{"activation", []string{"", "tanh", "relu", "identity"}, false,
			func(t *wire.Task, w string) { t.Model.Activation = spec.Activation(w) },
			func(t *wire.Task) string { return string(t.Model.Activation) }},
		{"exchange", []string{"", "parameters", "gradient"}, false,
			func(t *wire.Task, w string) { t.Training.ExchangeKind = spec.ExchangeKind(w) },
			func(t *wire.Task) string { return string(t.Training.ExchangeKind) }},
		{"noise", []string{"", "gaussian", "laplace"}, false,
			func(t *wire.Task, w string) { t.Training.GradientNoise.Law = spec.NoiseLaw(w) },
			func(t *wire.Task) string { return string(t.Training.GradientNoise.Law) }},
		{"codec", []string{"", "raw", "bfloat16", "int8", "int4"}, true,
			func(t *wire.Task, w string) { t.Mixing.SnapshotCodec = spec.Codec(w) },
			func(t *wire.Task) string { return string(t.Mixing.SnapshotCodec) }},
	}
}

// TestWordsOfATask checks that each value has the code that docs/PROTOCOL.md defines, and that all other codes are
// rejected.
func TestWordsOfATask(t *testing.T) {
	for _, f := range wordFields() {
		encode := func(word string) []byte {
			task := linearTask()
			f.set(task, word)
			return task.AppendEncoding(nil)
		}
		one, two := encode(f.words[1]), encode(f.words[2])
		at := 0
		for at < len(one) && one[at] == two[at] {
			at++
		}
		if at == len(one) {
			t.Fatalf("%s: no byte differs", f.field)
		}
		for code, word := range f.words {
			if got := encode(word)[at]; len(encode(word)) == len(one) && int(got) != code {
				t.Errorf("%s: %q travels as %d, want %d", f.field, word, got, code)
			}
		}
		for code := range 256 {
			p := slices.Clone(one)
			p[at] = byte(code)
			got, err := wire.DecodeTask(p)
			known := code < len(f.words) && (code > 0 || f.zero)
			if known != (err == nil) || known && f.get(&got) != f.words[code] {
				t.Errorf("%s: byte %d is read as %q, %v", f.field, code, f.get(&got), err)
			}
		}
	}
}

// TestEveryLossHasACode checks that each loss that devices support has a code in [wordFields] and a golden task.
// TestGoldenFiles of internal/interop decodes every golden task with Python, so that it fails if _wire.py does not know
// the code.
func TestEveryLossHasACode(t *testing.T) {
	inGoldenTask := map[spec.LossKind]bool{}
	for _, g := range goldens() {
		if task, ok := g.value.(*wire.Task); ok {
			inGoldenTask[task.Model.Risk] = true
		}
	}
	risk := wordFields()[0]
	for _, loss := range spec.DeviceLossKinds() {
		if !slices.Contains(risk.words, string(loss)) {
			t.Errorf("loss %s: add its code to wordFields", loss)
		}
		if !inGoldenTask[loss] {
			t.Errorf("loss %s: add a golden task with it to goldens", loss)
		}
	}
}

// TestCodecOfALaterVersion checks that an agent declines a task whose update codec it does not know.
func TestCodecOfALaterVersion(t *testing.T) {
	raw, packed := linearTask(), linearTask()
	raw.Training.UpdateCodec, packed.Training.UpdateCodec = spec.CodecRaw, spec.CodecInt4
	p := packed.AppendEncoding(nil)
	// position of the section's name, which is followed by the policy 2, the length of the body, and a body of one byte
	at := bytes.Index(p, []byte("codec"))
	if at < 0 || bytes.Contains(raw.AppendEncoding(nil), []byte("codec")) {
		t.Fatalf("the section is missing in %x", p)
	}
	at += len("codec") + 1
	for at < len(p) && p[at] != 4 {
		at++
	}
	if got, err := wire.DecodeTask(p); err != nil || got.Training.UpdateCodec != spec.CodecInt4 {
		t.Errorf("read as %q, %v", got.Training.UpdateCodec, err)
	}
	for code := len(spec.MixingCodecs()) + 1; code < 256; code++ {
		p[at] = byte(code)
		if got, err := wire.DecodeTask(p); err == nil {
			t.Errorf("byte %d is read as %q", code, got.Training.UpdateCodec)
		}
	}
}

// TestWordWithoutAByte checks that a loss without a code is encoded as 0, which receivers reject.
func TestWordWithoutAByte(t *testing.T) {
	task := linearTask()
	task.Model.Risk = spec.LossFullSquared
	if _, err := wire.DecodeTask(task.AppendEncoding(nil)); err == nil {
		t.Error("a task with the risk full_squared is read")
	}
}
