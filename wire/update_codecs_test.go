package wire_test

import (
	"bytes"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestCodecOfASection checks that an agent that does not know the section of a codec decodes the task and sends raw
// updates. A task with two codecs must be rejected.
func TestCodecOfASection(t *testing.T) {
	for section, word := range map[string]spec.Codec{"signs": spec.CodecSigns, "top_k": spec.TopKCodec(0.1)} {
		task := linearTask()
		task.Training.UpdateCodec = word
		p := task.AppendEncoding(nil)
		if got, err := wire.DecodeTask(p); err != nil || got.Training.UpdateCodec != word {
			t.Errorf("%s: read as %q, %v", word, got.Training.UpdateCodec, err)
		}
		unknown := bytes.Replace(p, []byte(section), []byte(section[:len(section)-1]+"z"), 1)
		got, err := wire.DecodeTask(unknown)
		if err != nil || got.Training.UpdateCodec != spec.CodecRaw || len(got.Extra) != 1 ||
			got.Extra.CheckSupported() != nil {
			t.Errorf("%s: without the section the codec is %q, its sections %v, error %v", word,
				got.Training.UpdateCodec,
				got.Extra, err)
		}
		got.Training.UpdateCodec, got.Extra[0].Name = spec.CodecInt8, section
		if _, err := wire.DecodeTask(got.AppendEncoding(nil)); err == nil {
			t.Errorf("%s beside int8 is read", word)
		}
	}
}
