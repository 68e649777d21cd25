package homeassistant

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// addon contains the keys of config.yaml that the add-on uses. The tests decode config.yaml strictly, because the
// Supervisor silently removes unknown keys.
type addon struct {
	Name, Version, Slug, Description, URL string
	Arch                                  []string
	Startup, Backup                       string
	Init                                  bool
	Map                                   []struct {
		Type     string
		ReadOnly bool `yaml:"read_only"`
	}
	Options map[string]string
	Schema  map[string]string
}

// load decodes a YAML file of the add-on.
func load(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalWithOptions(text, into, yaml.Strict()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestConfig checks config.yaml against the rules of Home Assistant's Supervisor (supervisor/addons/validate.py and
// options.py of 2025).
func TestConfig(t *testing.T) {
	var a addon
	load(t, "config.yaml", &a)
	for value, rule := range map[string]string{
		a.Name: `.+`, a.Description: `.+`, a.Version: `^[0-9]+\.[0-9]+\.[0-9]+`, a.Slug: `^[-_.A-Za-z0-9]+$`,
		a.URL: `^https://`, a.Startup: `^(initialize|system|services|application|once)$`, a.Backup: `^(hot|cold)$`,
	} {
		if !regexp.MustCompile(rule).MatchString(value) {
			t.Errorf("config.yaml contains %q, which does not match %s", value, rule)
		}
	}
	for _, arch := range a.Arch {
		if !slices.Contains([]string{"aarch64", "amd64"}, arch) {
			t.Errorf("unknown architecture %q", arch)
		}
	}
	for _, m := range a.Map {
		if !slices.Contains([]string{"data", "config", "ssl", "addons", "backup", "share", "media",
			"homeassistant_config", "all_addon_configs", "addon_config"}, m.Type) {
			t.Errorf("unknown folder %q", m.Type)
		}
	}
	element := regexp.MustCompile(`^(bool|email|url|port|device|str|password|int|float|match\(.*\)|list\(.+\))\??$`)
	for key, kind := range a.Schema {
		if !element.MatchString(kind) {
			t.Errorf("option %s has the unknown type %q", key, kind)
		}
		if _, ok := a.Options[key]; !ok {
			t.Errorf("option %s has no default", key)
		}
	}
	if len(a.Options) != len(a.Schema) {
		t.Errorf("options %v, want the options of the schema: %v", a.Options, a.Schema)
	}
	if docker, err := os.ReadFile("Dockerfile"); err != nil ||
		!strings.Contains(string(docker), "ARG BUILD_VERSION="+a.Version+"\n") {
		t.Errorf("the Dockerfile does not build version %s by default (%v)", a.Version, err)
	}
}

// TestTranslations checks that each option has a name and a description.
func TestTranslations(t *testing.T) {
	var a addon
	load(t, "config.yaml", &a)
	var page struct {
		Configuration map[string]struct{ Name, Description string }
	}
	load(t, "translations/en.yaml", &page)
	for key := range a.Schema {
		if text := page.Configuration[key]; text.Name == "" || text.Description == "" {
			t.Errorf("option %s has no name or no description", key)
		}
	}
	if len(page.Configuration) != len(a.Schema) {
		t.Errorf("%d translations of %d options", len(page.Configuration), len(a.Schema))
	}
}

// TestRunScript checks that run.sh reads only options of the schema.
func TestRunScript(t *testing.T) {
	var a addon
	load(t, "config.yaml", &a)
	text, err := os.ReadFile("run.sh")
	if err != nil {
		t.Fatal(err)
	}
	read := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\(option (\w+)\)`).FindAllStringSubmatch(string(text), -1) {
		read[m[1]] = true
		if _, ok := a.Schema[m[1]]; !ok {
			t.Errorf("run.sh reads %s, which is not in the schema", m[1])
		}
	}
	if len(read) != len(a.Schema) {
		t.Errorf("run.sh reads %v, want all options of the schema", read)
	}
}
