package coordinatorsettings

import (
	"cmp"
	"net"
	"net/http"
	"net/url"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/history"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// HistoryExport configures the services to which the coordinator exports its round history.
type HistoryExport struct {
	MLflow MLflow `yaml:"mlflow"`
}

// MLflow configures a tracking server to which each round is logged.
type MLflow struct {
	URL        string `yaml:"url"`        // URL of the MLflow server; empty disables the export
	Experiment string `yaml:"experiment"` // name of the experiment; empty for the federation's name
	TokenFile  string `yaml:"token_file"` // file with a bearer token
}

func (m *MLflow) check(c *spec.ProblemList) {
	const key = "history.mlflow.url"
	if m.URL == "" {
		c.Require(m.Experiment == "" && m.TokenFile == "", key,
			"is empty, but other keys of history.mlflow are set: set it to http://host:port")
		return
	}
	u, err := url.Parse(m.URL)
	good := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil &&
		u.RawQuery == "" && u.Fragment == ""
	c.Require(good, key, "must be http://host:port or https://host, without a user or a query, but is %q", m.URL)
	if !good || m.TokenFile == "" {
		return
	}
	ip := net.ParseIP(u.Hostname())
	c.Require(u.Scheme == "https" || u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(), key,
		"must be https:// because token_file is set and the server is on another machine, but is %s: over http:// the "+
			"token would be sent in plain text", m.URL)
	_, err = m.readToken()
	c.AddError("history.mlflow.token_file", err)
}

func (m *MLflow) readToken() (string, error) {
	token, _, err := config.ReadSecret("", settings.ResolveSecretFile(m.TokenFile), "token", "")
	return string(token), err
}

// MLflowTracking returns the settings of the MLflow export for package history. version is the version of the
// coordinator program.
func (s *ConfigFile) MLflowTracking(version string) (*history.MLflowTracking, error) {
	m := &s.History.MLflow
	var c spec.ProblemList
	m.check(&c)
	if err := c.Err(); err != nil {
		return nil, err
	}
	token, err := m.readToken()
	return &history.MLflowTracking{URL: m.URL, Token: token, Experiment: cmp.Or(m.Experiment, s.Federation),
		Federation: s.Federation, ProgramVersion: version, HTTP: http.DefaultClient,
		ReadAppliedTask: func() (wire.RunID, []config.Setting) { return readAppliedTask(s.StateDir) }}, err
}

// readAppliedTask returns the applied task of a state folder and the number of its run. It returns 0 if there is no
// applied task.
func readAppliedTask(dir string) (wire.RunID, []config.Setting) {
	control, found, err := coordinator.LoadOperatorDecisions(dir)
	_, record, unread := runs.OpenModelsOfCurrentRun(dir)
	a := defaultApplied()
	if err != nil || unread != nil || !found ||
		config.Load(&a, config.Source{Path: "the applied task", Text: control.Task.TaskYAML}) != nil {
		return 0, nil
	}
	return record.Run, config.Settings(&a)
}
