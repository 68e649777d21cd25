package config

import (
	"strings"
	"testing"
	"time"
)

// TestFill: comments, marks and the lines of other keys are as a person would leave them.
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
	got := string(Fill([]byte(sample), map[string]any{
		"name": "my air", "round.pause": time.Minute, "round.rounds": 20, "round.steps": []string{"a", "b"},
		"d2d.uplink": true, "url": "tcp://10.0.0.1:1883",
	}))
	if got != want {
		t.Errorf("filled in:\n%s\nwant:\n%s", got, want)
	}
	if same := string(Fill([]byte(sample), nil)); same != sample {
		t.Errorf("nothing filled in:\n%s", same)
	}
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "no key round.nothing") {
			t.Errorf("a key that the sample lacks: %q", r)
		}
	}()
	Fill([]byte(sample), map[string]any{"round.nothing": 1})
}
