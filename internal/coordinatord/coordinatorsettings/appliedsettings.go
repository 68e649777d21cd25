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

// AppliedSettings is the part of the coordinator's configuration that can be applied to a running federation. The
// configuration file sets it for the first run. Later runs read it from the state folder.
type AppliedSettings struct {
	Task    settings.Task  `yaml:"task"`
	Round   round.Config   `yaml:"round"`
	Mesh    Mesh           `yaml:"mesh"`
	Rollout rollout.Config `yaml:"predict"`
}

func defaultApplied() AppliedSettings {
	s := Default()
	return s.AppliedSettings()
}

// AppliedSettings returns the part of the configuration that can be changed while the federation runs.
func (s *ConfigFile) AppliedSettings() AppliedSettings {
	return AppliedSettings{s.Task, s.Round, s.Mesh, s.Rollout}
}

// WithApplied returns a copy of the configuration with the applied part replaced by a.
func (s *ConfigFile) WithApplied(a AppliedSettings) *ConfigFile {
	with := *s
	with.Task, with.Round, with.Mesh, with.Rollout = a.Task, a.Round, a.Mesh, a.Rollout
	return &with
}

// YAML returns the settings as YAML, for ReadApplied and [settings.ReadTask].
func (a *AppliedSettings) YAML() []byte {
	var b bytes.Buffer
	_ = config.WriteYAML(&b, a) // writing to a buffer never fails
	return b.Bytes()
}

// ReadApplied reads applied settings from the text of a file, which may be a complete coordinator.yaml. Other keys are
// only validated. Missing keys get their defaults. As in [config.Load], every problem is reported with its line.
func (s *ConfigFile) ReadApplied(name string, text []byte) (AppliedSettings, error) {
	read := s.WithApplied(defaultApplied())
	err := config.Load(read, config.Source{Path: cmp.Or(name, "the task"), Text: text})
	return read.AppliedSettings(), err
}

// Validate reports every problem of the task by key. The other sections are not validated, because they do not concern
// a device.
func (a *AppliedSettings) Validate() error {
	var c spec.ProblemList
	a.Task.Check(&c, a.Round.Algorithm == spec.FedDec)
	return c.Err()
}

// taskOnlySettings is a ConfigFile whose Validate method validates only the task.
type taskOnlySettings ConfigFile

// Validate reports every problem of the task by key.
func (f *taskOnlySettings) Validate() error {
	a := (*ConfigFile)(f).AppliedSettings()
	return a.Validate()
}

// EditAppliedText returns the applied settings from text as YAML, with the given values replaced. Values are in
// command-line notation, and name is the file name for errors.
func EditAppliedText(name string, text []byte, values map[string]string) ([]byte, error) {
	f := taskOnlySettings(Default())
	if err := config.Load(&f, config.Source{Path: name, Text: text, Overrides: values}); err != nil {
		return nil, err
	}
	a := (*ConfigFile)(&f).AppliedSettings()
	return a.YAML(), nil
}
