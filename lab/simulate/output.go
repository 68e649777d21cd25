package simulate

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/fedmesh/fedmesh/lab/sim"
)

// writeNumbers writes the result as result.json and curves.csv.
func writeNumbers(dir string, r *sim.Result) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "result.json"), append(text, '\n'), 0o666),
		os.WriteFile(filepath.Join(dir, "curves.csv"), curves(r), 0o666),
	)
}

// curves returns a CSV table with one line per recorded round: the mean and the half-width of the confidence interval
// of each metric.
func curves(r *sim.Result) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	header := []string{"round"}
	for _, m := range r.Metrics {
		header = append(header, m.Name)
		if m.CI95 != nil {
			header = append(header, m.Name+"_ci95")
		}
	}
	lines := [][]string{header}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	for i, round := range r.Rounds {
		line := []string{strconv.Itoa(round)}
		for _, m := range r.Metrics {
			line = append(line, number(m.Mean[i]))
			if m.CI95 != nil {
				line = append(line, number(m.CI95[i]))
			}
		}
		lines = append(lines, line)
	}
	_ = w.WriteAll(lines) // cannot fail: writes to memory
	return b.Bytes()
}
