package config_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/spec"
)

// checked is a configuration whose validation rejects every value, so that a test can check the location of each error.
type checked struct {
	Task   task              `yaml:"task"`
	TLS    tls               `yaml:"tls"`
	Agents []string          `yaml:"agents"`
	Labels map[string]string `yaml:"labels"`
	Secret config.Secret     `yaml:"secret"`
}

func (c *checked) Validate() error {
	return errors.Join(
		&spec.FieldError{Key: "task.step_size", Problem: fmt.Sprintf("must be > 0, is %g", c.Task.StepSize)},
		&spec.FieldError{Key: "task.level", Problem: "is wrong"},
		&spec.FieldError{Key: "task.offset", Problem: "is wrong"},
		fmt.Errorf("wrapped: %w", &spec.FieldError{Key: "tls.ca", Problem: "is wrong"}),
		errors.Join(
			&spec.FieldError{Key: "agents[1]", Problem: "is wrong"},
			&spec.FieldError{Key: "agents", Problem: "is wrong"},
			&spec.FieldError{Key: "labels.site", Problem: "is wrong"},
			&spec.FieldError{Key: "secret", Problem: "is short"},
		),
		errors.New("does not fit together"),
	)
}

func TestValidationNamesTheOrigin(t *testing.T) {
	t.Chdir(t.TempDir())
	const yaml = "task:\n  step_size: -1\nagents:\n- a\n- b\nlabels:\n  site: x\nsecret:\n  hunter2\n"
	if err := os.WriteFile("c.yaml", []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	var cfg checked
	err := config.Load(&cfg, config.Source{
		Path: "c.yaml", EnvPrefix: "AGENTD", Environ: []string{"AGENTD_TASK_LEVEL=7"},
	})
	wantMessage(t, err, `
c.yaml:2:14: task.step_size: must be > 0, is -1
  2 |   step_size: -1
    |              ^
environment AGENTD_TASK_LEVEL: task.level: is wrong
c.yaml:1:1: task.offset: is wrong; set task.offset in the file or AGENTD_TASK_OFFSET in the environment
  1 | task:
    | ^
c.yaml: tls.ca: is wrong; set tls.ca in the file or AGENTD_TLS_CA in the environment
c.yaml:5:3: agents[1]: is wrong
  5 | - b
    |   ^
c.yaml:3:1: agents: is wrong
  3 | agents:
    | ^
c.yaml:7:9: labels.site: is wrong
  7 |   site: x
    |         ^
c.yaml:8:1: secret: is short
  8 | secret:[redacted]
    | ^
c.yaml: does not fit together`)

	err = config.Load(&cfg, config.Source{
		Path: "c.yaml", EnvPrefix: "AGENTD", Environ: []string{"AGENTD_AGENTS=x,y"},
		Overrides: map[string]string{"task.step_size": "-2", "task.level": "1", "task.offset": "1", "tls.ca": "x"},
	})
	wantMessage(t, err, `
command line: task.step_size: must be > 0, is -2
command line: task.level: is wrong
command line: task.offset: is wrong
command line: tls.ca: is wrong
environment AGENTD_AGENTS: agents[1]: is wrong
environment AGENTD_AGENTS: agents: is wrong
c.yaml:7:9: labels.site: is wrong
  7 |   site: x
    |         ^
c.yaml:8:1: secret: is short
  8 | secret:[redacted]
    | ^
c.yaml: does not fit together`)

	wantMessage(t, config.Load(new(onlyDefaults), config.Source{}), `
defaults: task.level: is wrong`)
}

type onlyDefaults struct {
	Task task `yaml:"task"`
}

func (onlyDefaults) Validate() error {
	return &spec.FieldError{Key: "task.level", Problem: "is wrong"}
}

func TestNoValidationOfHalfAConfiguration(t *testing.T) {
	err := config.Load(new(onlyDefaults), config.Source{Overrides: map[string]string{"task.level": "x"}})
	wantMessage(t, err, `
command line: task.level: want a whole number from 0 to 255, got "x"`)
}

type valid struct {
	Task task `yaml:"task"`
}

func (valid) Validate() error { return errors.Join(nil, nil) }

func TestValid(t *testing.T) {
	if err := config.Load(new(valid), config.Source{}); err != nil {
		t.Error(err)
	}
}
