package reproduce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Set changes a setting of an experiment. key is the JSON name of the setting, and value is JSON or a plain word. A
// list replaces the previous list completely. If the key is unknown, the error lists the known keys.
func Set(e Experiment, key, value string) error {
	text := json.RawMessage(value)
	if !json.Valid(text) {
		text, _ = json.Marshal(value)
	}
	settings := keysOf(e)
	if !slices.Contains(settings, key) {
		return fmt.Errorf("%s has no key %q; available keys: %s", e.About().ID, key, strings.Join(settings, ", "))
	}
	if string(bytes.TrimSpace(text)) == "null" {
		return fmt.Errorf("%s.%s=%s: the value is empty, want a value", e.About().ID, key, value)
	}
	change, err := json.Marshal(map[string]json.RawMessage{key: text})
	if err == nil { // Clear the old list first, because the decoder reuses elements.
		err = json.Unmarshal(fmt.Appendf(nil, `{%q: null}`, key), e)
	}
	if err != nil {
		return fmt.Errorf("%s.%s: %w", e.About().ID, key, err)
	}
	d := json.NewDecoder(bytes.NewReader(change))
	d.DisallowUnknownFields() // Reject unknown keys in list elements, too.
	if err := d.Decode(e); err != nil {
		return fmt.Errorf("%s.%s=%s: %w", e.About().ID, key, value, err)
	}
	return nil
}

// keysOf returns the sorted setting names of an experiment.
func keysOf(e Experiment) []string {
	text, err := json.Marshal(e)
	var fields map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic("reproduce: " + err.Error()) // cannot fail, because the fields of an experiment are plain data
	}
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
