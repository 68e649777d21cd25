package coordinatorsettings

import (
	"bytes"
	"cmp"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/round/rollout"
	"github.com/fedmesh/fedmesh/spec"
)

// AppliedSettings is the part of the coordinator's configuration that is applied to a running federation: what is
// learned, and how. The file founds the first run with it; from then on it stands in the state folder.
type AppliedSettings struct {
	Task    settings.Task  `yaml:"task"`
	Round   round.Config   `yaml:"round"`
	Mesh    Mesh           `yaml:"mesh"`
	Rollout rollout.Config `yaml:"predict"`
}

// defaultApplied returns the defaults.
func defaultApplied() AppliedSettings {
	s := Default()
	return s.AppliedSettings()
}

// AppliedSettings returns that part of the configuration.
func (s *ConfigFile) AppliedSettings() AppliedSettings {
	return AppliedSettings{s.Task, s.Round, s.Mesh, s.Rollout}
}

// WithApplied returns the configuration with another such part.
func (s *ConfigFile) WithApplied(a AppliedSettings) *ConfigFile {
	with := *s
	with.Task, with.Round, with.Mesh, with.Rollout = a.Task, a.Round, a.Mesh, a.Rollout
	return &with
}

// YAML writes it as YAML, for ReadApplied and [settings.ReadTask].
func (a *AppliedSettings) YAML() []byte {
	var b bytes.Buffer
	_ = config.WriteYAML(&b, a) // a buffer takes all
	return b.Bytes()
}

// ReadApplied reads the text of a file, which may be a whole coordinator.yaml: of that the other keys are only checked.
// Keys that are not there have their defaults. Every problem is reported with its line, as [config.Load] does.
func (s *ConfigFile) ReadApplied(name string, text []byte) (AppliedSettings, error) {
	read := s.WithApplied(defaultApplied())
	err := config.Load(read, config.Source{Path: cmp.Or(name, "the task"), Text: text})
	return read.AppliedSettings(), err
}

// Validate reports every problem of the task, by key, and of nothing else: a device has no part in the rest.
func (a *AppliedSettings) Validate() error {
	var c spec.ProblemList
	a.Task.Check(&c, a.Round.Algorithm == spec.FedDec)
	return c.Err()
}

// taskOnlySettings is a coordinator.yaml, or a part of it, of which only the task is validated.
type taskOnlySettings ConfigFile

// Validate reports every problem of the task, by key.
func (f *taskOnlySettings) Validate() error {
	a := (*ConfigFile)(f).AppliedSettings()
	return a.Validate()
}

// EditAppliedText returns the applied part of a file with other values of some keys, written as on a command line. name
// names the file in errors.
func EditAppliedText(name string, text []byte, values map[string]string) ([]byte, error) {
	f := taskOnlySettings(Default())
	if err := config.Load(&f, config.Source{Path: name, Text: text, Overrides: values}); err != nil {
		return nil, err
	}
	a := (*ConfigFile)(&f).AppliedSettings()
	return a.YAML(), nil
}
