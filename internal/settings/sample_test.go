package settings_test

import (
	"bufio"
	"bytes"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/packaging"
)

// Types of the settings without the method Validate. They are needed to load a sample with all its examples, because no
// valid configuration can contain all keys.
type (
	agentKeys       settings.Agent
	coordinatorKeys coordinatorsettings.ConfigFile
)

// TestSamplesLoad loads the sample files as the programs do. It adds only the public and private keys, which a sample
// cannot contain.
func TestSamplesLoad(t *testing.T) {
	key, _ := writeKey(t)
	agent := settings.DefaultAgent()
	if err := settings.Load(&agent, "agentd", writeFile(t, "agentd.yaml", string(packaging.AgentConfig)),
		map[string]string{
			"identity.key_file": key, "identity.coordinator_key": publicKey(7),
		}); err != nil {
		t.Error(err)
	}
	var list strings.Builder
	for i, id := range []string{"a", "b", "c", "d", "e", "f"} {
		list.WriteString(id + " " + publicKey(byte(i+1)) + "\n")
	}
	coordinator := coordinatorsettings.Default()
	if err := settings.Load(&coordinator, "coordinator", writeFile(t, "coordinator.yaml",
		string(packaging.CoordinatorConfig)),
		map[string]string{
			"identity.key_file": key, "identity.agents_file": writeFile(t, "agents.keys", list.String()),
		}); err != nil {
		t.Error(err)
	}
}

// TestSamplesAreComplete checks that each sample file contains every key. The value must be the default unless the line
// has a mark.
func TestSamplesAreComplete(t *testing.T) {
	agent, coordinator := agentKeys(settings.DefaultAgent()), coordinatorKeys(coordinatorsettings.Default())
	coordinator.HeldOutData = &data.Config{}
	agent.D2D = &settings.D2D{Place: &settings.AgentLocation{}}
	t.Run("agentd", func(t *testing.T) {
		loaded := agentKeys(settings.DefaultAgent())
		compareSample(t, packaging.AgentConfig, &loaded, &agent)
	})
	t.Run("coordinator", func(t *testing.T) {
		loaded := coordinatorKeys(coordinatorsettings.Default())
		compareSample(t, packaging.CoordinatorConfig, &loaded, &coordinator)
	})
}

// compareSample loads a sample with all its examples into loaded.
func compareSample(t *testing.T, sample []byte, loaded, defaults any) {
	all, marks := uncomment(t, sample)
	path := writeFile(t, "all.yaml", all)
	if err := config.Load(loaded, config.Source{Path: path}); err != nil {
		t.Fatal(err)
	}
	want := leaves(reflect.TypeOf(defaults).Elem(), "")
	if got := slices.Sorted(maps.Keys(marks)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("the sample has the keys\n%v\nwant\n%v", got, want)
	}
	for _, key := range want {
		is, fallback := lookUp(loaded, key), lookUp(defaults, key)
		switch same := reflect.DeepEqual(is, fallback); {
		case marks[key] == "" && !same:
			t.Errorf("%s is %v and not marked, but the default is %v", key, is, fallback)
		case marks[key] == "example" && !reflect.ValueOf(fallback).IsZero():
			t.Errorf("%s is marked (example), but has a default: %v", key, fallback)
		}
	}
}

var (
	// matches a commented-out key; a commented sentence begins with one space.
	commented = regexp.MustCompile(`^(\s*)#((?:  )*\w+:.*)$`)
	keyLine   = regexp.MustCompile(`^( *)(\w+):(.*)$`)
	marked    = regexp.MustCompile(`# \((yours|example)\)`)
)

// uncomment returns the sample with all commented-out keys uncommented. marks contains the mark of each key, which is
// on the key's line or on the line above.
func uncomment(t *testing.T, sample []byte) (text string, marks map[string]string) {
	t.Helper()
	marks = map[string]string{}
	var b strings.Builder
	var path []string
	above := ""
	s := bufio.NewScanner(bytes.NewReader(sample))
	for s.Scan() {
		line := commented.ReplaceAllString(s.Text(), "$1$2")
		b.WriteString(line + "\n")
		mark := ""
		if m := marked.FindStringSubmatch(line); m != nil {
			mark = m[1]
		}
		if m := keyLine.FindStringSubmatch(line); m != nil {
			path = append(path[:len(m[1])/2], m[2])
			if value, _, _ := strings.Cut(m[3], "#"); strings.TrimSpace(value) != "" {
				marks[strings.Join(path, ".")] = mark + above
			}
		}
		above = ""
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			above = mark
		}
	}
	return b.String(), marks
}

// lookUp returns the value of a key in a settings struct.
func lookUp(settings any, key string) any {
	v := reflect.ValueOf(settings).Elem()
	for name := range strings.SplitSeq(key, ".") {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.Tag.Get("yaml") == name {
				v = v.FieldByIndex(f.Index)
				break
			}
		}
	}
	return v.Interface()
}

// TestWrittenLoads checks that a configuration can be loaded after WriteYAML has written it. The programs in the folder
// lab write such configurations.
func TestWrittenLoads(t *testing.T) {
	key, _ := writeKey(t)
	agent := settings.DefaultAgent()
	agent.ID, agent.Federation, agent.StateDir = "a", "plant", t.TempDir()
	agent.Data.CSVPath = writeFile(t, "data.csv", "x,y\n1,1\n")
	agent.Identity = settings.AgentIdentity{KeyFile: key, CoordinatorKey: publicKey(7)}
	var text strings.Builder
	if err := config.WriteYAML(&text, &agent); err != nil {
		t.Fatal(err)
	}
	back := settings.DefaultAgent()
	if err := settings.Load(&back, "agentd", writeFile(t, "agentd.yaml", text.String()), nil); err != nil {
		t.Error(err)
	}
}
