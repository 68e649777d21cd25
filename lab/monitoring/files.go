package monitoring

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"

	"github.com/goccy/go-yaml"
)

// Dashboard contains the checked parts of a Grafana dashboard.
type Dashboard struct {
	File          string `json:"-"`
	UID           string `json:"uid"`
	Title         string `json:"title"`
	Description   string `json:"description"`
	SchemaVersion int    `json:"schemaVersion"`
	Editable      bool   `json:"editable"`
	Links         []struct {
		URL string `json:"url"`
	} `json:"links"`
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
	Panels []Panel `json:"panels"`
}

// Variable is a dashboard variable, whose value the user selects.
type Variable struct {
	Name       string      `json:"name"`
	Type       string      `json:"type"`
	Datasource *datasource `json:"datasource"`
	Query      any         `json:"query"`
}

type datasource struct {
	UID string `json:"uid"`
}

// Panel is a panel of a dashboard, or the title of a row.
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Datasource  *datasource `json:"datasource"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
}

// Target is one query of a panel.
type Target struct {
	RefID        string      `json:"refId"`
	Datasource   *datasource `json:"datasource"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat"`
}

// Rule is a recording rule or an alerting rule of Prometheus.
type Rule struct {
	Record      string            `yaml:"record"`
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// Dashboards reads all dashboards in files.
func Dashboards(files fs.FS) ([]Dashboard, error) {
	var all []Dashboard
	err := eachFile(files, "grafana/dashboards/*.json", func(name string, text []byte) error {
		d := Dashboard{File: path.Base(name)}
		err := json.Unmarshal(text, &d)
		all = append(all, d)
		return err
	})
	return all, err
}

// Rules reads all Prometheus rules in files.
func Rules(files fs.FS) ([]Rule, error) {
	var all []Rule
	err := eachFile(files, "rules/*.yml", func(_ string, text []byte) error {
		var file struct {
			Groups []struct {
				Name  string `yaml:"name"`
				Rules []Rule `yaml:"rules"`
			} `yaml:"groups"`
		}
		if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
			return err
		}
		for _, g := range file.Groups {
			all = append(all, g.Rules...)
		}
		return nil
	})
	return all, err
}

func eachFile(files fs.FS, pattern string, take func(name string, text []byte) error) error {
	names, err := fs.Glob(files, pattern)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("no files match %s", pattern)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err == nil {
			err = take(name, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
