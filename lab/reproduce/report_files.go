package reproduce

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
)

// Failed returns the report of an experiment that returned an error. The field Holds is false.
func Failed(e Experiment, err error) *Report {
	r := &Report{About: e.About()}
	r.find(Finding{What: "the experiment runs", Measured: err.Error(), Expected: "a result"})
	return r
}

// WriteFiles writes report.html, report.json with all findings and values, and a file for each plot to a folder.
func WriteFiles(dir string, o Options, outcomes []Outcome) error {
	var page bytes.Buffer
	if err := writeHTML(&page, o, outcomes); err != nil {
		return err
	}
	text, err := json.MarshalIndent(outcomes, "", " ")
	if err != nil {
		return err
	}
	files := map[string][]byte{"report.html": page.Bytes(), "report.json": append(text, '\n')}
	for _, o := range outcomes {
		for _, p := range o.Plots {
			if files[p.Name+".svg"], err = p.SVG(); err != nil {
				return err
			}
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
			return err
		}
	}
	return nil
}
