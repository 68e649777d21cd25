package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestFill checks that FillSampleConfig keeps comments, marks and the lines of other keys, as a user editing by hand
// would.
func TestFill(t *testing.T) {
	const sample = `# A sentence: with a colon.
name: air       # (yours) for people
round:          # of a federation
  pause: 0s     # between rounds
  #rounds: 9    # (example) until the end
  # (yours) Their names.
  steps: 3
# About the rest: it is optional.
#d2d:
#  uplink: false  # over the broker above
#  cell: hall   # (example)
url: tls://b.example:8883
#log: {}        # (example)`
	const want = `# A sentence: with a colon.
name: "my air"  # for people
round:          # of a federation
  pause: 1m0s   # between rounds
  rounds: 20    # until the end
  # Their names.
  steps: [a, b]
# About the rest: it is optional.
d2d:
  uplink: true    # over the broker above
#  cell: hall   # (example)
url: tcp://10.0.0.1:1883
#log: {}        # (example)`
	got := string(FillSampleConfig([]byte(sample), map[string]any{
		"name": "my air", "round.pause": time.Minute, "round.rounds": 20, "round.steps": []string{"a", "b"},
		"d2d.uplink": true, "url": "tcp://10.0.0.1:1883",
	}))
	if got != want {
		t.Errorf("filled in:\n%s\nwant:\n%s", got, want)
	}
	if same := string(FillSampleConfig([]byte(sample), nil)); same != sample {
		t.Errorf("nothing filled in:\n%s", same)
	}
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "no key round.nothing") {
			t.Errorf("a key that the sample lacks: %q", r)
		}
	}()
	FillSampleConfig([]byte(sample), map[string]any{"round.nothing": 1})
}

// TestEdit checks that EditConfigText sets keys in files of any layout, and that it keeps all other text, including
// comments.
func TestEdit(t *testing.T) {
	type broker struct {
		URL string `yaml:"url"`
		CA  string `yaml:"ca_file"`
	}
	type settings struct {
		ID     string  `yaml:"id"`
		Broker broker  `yaml:"broker"`
		Site   *broker `yaml:"site"`
	}
	fresh := func() any { return &settings{ID: "none"} }
	values := map[string]string{"id": "a: b #c", "broker.url": "tls://b:1", "broker.ca_file": "/etc/ca",
		"site.url": "x"}
	const filled = "#\nbroker:\n  url: tls://b:1\n  ca_file: /etc/ca\nid: \"a: b #c\"\nsite:\n  url: x\n"
	for name, tt := range map[string]struct{ file, want string }{
		"empty": {"#\n", filled},
		"sample": {"# About\nid: me    # (yours) unique\nbroker:\n  url: tcp://h:1   # ours\n" +
			"  #ca_file: /ca  # (example) why\n" +
			"#site:\n#  url: s  # (example)\n",
			"# About\nid: \"a: b #c\"  # unique\nbroker:\n  url: tls://b:1   # ours\n  ca_file: /etc/ca  # why\n" +
				"site:\n  url: x\n"},
		"a comment of another value": {"#id: old\nid: me\nbroker:\n  url: x\n  #url: y\n  ca_file: z\n" +
			"site:\n  url: u\n",
			"#id: old\nid: \"a: b #c\"\nbroker:\n  url: tls://b:1\n  #url: y\n  ca_file: /etc/ca\nsite:\n  url: x\n"},
		"a section without the keys": {"broker:\nid: me\n", ""},
		"in one line":                {"broker: {url: x}\n", ""},
		"already so":                 {filled, filled},
	} {
		got, err := EditConfigText("a.yaml", []byte(tt.file), values, fresh)
		if tt.want == "" {
			if err == nil {
				t.Errorf("%s: edited to\n%s", name, got)
			}
			continue
		}
		is := fresh()
		if err == nil {
			err = Load(is, Source{Text: got})
		}
		want := &settings{"a: b #c", broker{"tls://b:1", "/etc/ca"}, &broker{URL: "x"}}
		if err != nil || !reflect.DeepEqual(is, want) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
		if string(got) != tt.want {
			t.Errorf("%s: edited to\n%s\nwant\n%s", name, got, tt.want)
		}
	}
	if _, err := EditConfigText("a.yaml", []byte("#\n"), map[string]string{"nothing": "x"}, fresh); err == nil {
		t.Error("a key that there is not was set")
	}
	if got, err := EditConfigText("a.yaml", []byte("#\n"), map[string]string{"id": "a\nbroker: {url: x}"},
		fresh); err == nil {
		is := fresh()
		if err := Load(is, Source{Text: got}); err != nil || is.(*settings).Broker.URL != "" {
			t.Errorf("a value has become a key: %v\n%s", err, got)
		}
	}
}
