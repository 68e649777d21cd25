package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/wire"
)

// TestUnknownSections checks that unknown sections are kept, and that CheckSupported reports unknown sections that are
// mandatory.
func TestUnknownSections(t *testing.T) {
	a := pulledAnnouncement().value.(*wire.Announcement)
	got, err := wire.DecodeAnnouncement(a.Body())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Extra, a.Extra) || !reflect.DeepEqual(got.UnknownBlobs, a.UnknownBlobs) {
		t.Errorf("read %+v and %+v", got.Extra, got.UnknownBlobs)
	}
	err = got.Extra.CheckSupported()
	if !errors.Is(err, wire.ErrUnsupportedSection) || !strings.Contains(err.Error(), "later_rule") ||
		strings.Contains(err.Error(), "later_word") {
		t.Errorf("error %v, want one that names later_rule only", err)
	}
	if err := got.Extra[1:].CheckSupported(); err != nil {
		t.Errorf("a section that may be passed over: %v", err)
	}
}

// TestSectionsRefuse checks that each body has a unique encoding, and that a section with the wrong policy is an error.
func TestSectionsRefuse(t *testing.T) {
	section := func(name string, need byte, body string) string {
		return string([]byte{byte(len(name)), 0}) + name + string([]byte{need}) + string(le32(uint32(len(body)))) + body
	}
	list := func(sections ...string) string {
		return string(le32(uint32(len(sections)))) + strings.Join(sections, "")
	}
	noise := "\x01\x00\x00\x00\x00\x00\x00\xd0\x3f" // Gaussian noise with the variance 0.25
	for name, c := range map[string]struct{ sections, want string }{
		"twice":       {list(section("a", 1, "x"), section("a", 1, "x")), "must be in ascending order"},
		"descending":  {list(section("b", 1, "x"), section("a", 1, "x")), "must be in ascending order"},
		"empty":       {list(section("a", 1, "")), "is empty"},
		"no name":     {list(section("", 1, "x")), "is empty"},
		"capitals":    {list(section("A", 1, "x")), "use only a–z"},
		"long name":   {list(section(strings.Repeat("a", 33), 1, "x")), "exceeds the limit of 32"},
		"need 0":      {list(section("a", 0, "x")), "must be between 1 and 2"},
		"need 3":      {list(section("a", 3, "x")), "must be between 1 and 2"},
		"cut short":   {list(section("a", 1, "xyz"))[:14], "ends inside"},
		"65 sections": {string(le32(65)) + strings.Repeat(section("a", 1, "x"), 65), "exceeds the limit of 64"},
		"marked wrongly": {list(section("gradient_noise", 1, noise)), `has the policy "ignore", but must have ` +
			`"decline"`},
		"says nothing": {list(section("mixing", 2, strings.Repeat("\x00", 19))), "only default values"},
		"too long": {list(section("gradient_noise", 2, noise+"x")),
			"section gradient_noise: 1 unexpected bytes after"},
		"too short": {list(section("gradient_noise", 2, noise[:8])), "section gradient_noise: the message body " +
			"ends inside"},
		"not known word": {list(section("gradient_noise", 2, "\x09"+noise[1:])), "noise is 9"},
	} {
		task := linearTask()
		task.Mixing, task.Standardization = wire.MixingSettings{}, wire.Standardization{}
		p := bytes.TrimSuffix(task.AppendEncoding(nil), make([]byte, 4))
		if _, err := wire.DecodeTask(append(p, c.sections...)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestSensorsRefuse checks that the entries of sensor limits must refer to inputs of the task in ascending order, and
// that no entry may be empty.
func TestSensorsRefuse(t *testing.T) {
	good := readGolden(t, "task_sensors")
	from := bytes.Index(good, []byte("sensors")) + len("sensors") + 1 + 4
	entry := func(input, stuck uint32, jump float64) []byte {
		return slices.Concat(le32(input), le32(stuck), binary.LittleEndian.AppendUint64(nil, math.Float64bits(jump)))
	}
	for name, c := range map[string]struct {
		entries []byte
		want    string
	}{
		"the same twice": {slices.Concat(entry(1, 1, 0), entry(1, 2, 0)), "input number is 1, but must be between 2 " +
			"and 2"},
		"descending": {slices.Concat(entry(1, 1, 0), entry(0, 2, 0)), "input number is 0, but must be between 2 " +
			"and 2"},
		"no such input": {slices.Concat(entry(0, 1, 0), entry(3, 2, 0)), "input number is 3, but must be between 1 " +
			"and 2"},
		"of nothing": {slices.Concat(entry(0, 1, 0), entry(1, 0, 0)), "no limits for input 1"},
		"no number":  {slices.Concat(entry(0, 1, 0), entry(1, 0, math.NaN())), "jump is NaN"},
	} {
		p := slices.Concat(good[:from], le32(2), c.entries, good[from+4+len(c.entries):])
		if _, err := wire.DecodeTask(p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if _, err := wire.DecodeTask(slices.Concat(good[:from], le32(2), entry(0, 1, 0), entry(1, 1, 0),
		good[from+4+32:])); err != nil {
		t.Error("the same bytes with other numbers:", err)
	}
}

// TestNeeds checks that sections that change an agent's computation are mandatory, so that an agent that does not know
// them declines.
func TestNeeds(t *testing.T) {
	for _, c := range []struct {
		file, section string
		need          wire.UnknownSectionPolicy
	}{
		{"task_network", "gradient_noise", wire.DeclineUnknownSection}, {"task", "mixing", wire.DeclineUnknownSection},
		{"task_network", "codec", wire.DeclineUnknownSection}, {"task_network", "frozen", wire.DeclineUnknownSection},
		{"task_network", "huber", wire.DeclineUnknownSection}, {"task_personal", "personal",
			wire.DeclineUnknownSection},
		{"task_external", "external", wire.DeclineUnknownSection}, {"task_autoencoder", "kind",
			wire.DeclineUnknownSection},
		{"task_conv1d", "kind", wire.DeclineUnknownSection}, {"task_conv1d", "conv1d", wire.DeclineUnknownSection},
		{"task_ditto", "ditto", wire.DeclineUnknownSection}, {"task_personal", "finetune", wire.IgnoreUnknownSection},
		{"task_network", "proximal", wire.DeclineUnknownSection}, {"task_readings", "inputs",
			wire.DeclineUnknownSection},
		{"task_sensors", "sensors", wire.DeclineUnknownSection},
		{"task", "standardization", wire.DeclineUnknownSection}, {"invitation", "mixing", wire.DeclineUnknownSection},
		{"announcement_open", "selection", wire.IgnoreUnknownSection}, {"announcement_open", "credit",
			wire.IgnoreUnknownSection},
		{"update_chunked", "ahead", wire.IgnoreUnknownSection}, {"update_signs", "signs", wire.DeclineUnknownSection},
		{"task_signs", "signs", wire.IgnoreUnknownSection}, {"update_top_k", "top_k", wire.DeclineUnknownSection},
		{"task_top_k", "top_k", wire.IgnoreUnknownSection},
		{"hello", "location", wire.IgnoreUnknownSection}, {"hello", "mixing", wire.IgnoreUnknownSection},
		{"hello_unfit", "misfit", wire.IgnoreUnknownSection}, {"hello_key", "key", wire.IgnoreUnknownSection},
		{"announcement_sealed", "seals", wire.IgnoreUnknownSection},
		{"announcement_sealed", "sealed", wire.DeclineUnknownSection},
	} {
		_, rest, found := bytes.Cut(readGolden(t, c.file), []byte("\x00"+c.section))
		if !found || wire.UnknownSectionPolicy(rest[0]) != c.need {
			t.Errorf("section %s of %s: found %v, need %d, want %d", c.section, c.file, found, rest[0], c.need)
		}
	}
}
