package demo

import (
	"bytes"
	"compress/gzip"
	_ "embed" // The blank import enables go:embed.
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fedmesh/fedmesh/data/sources"
	"github.com/fedmesh/fedmesh/learner"
)

//go:embed data/beijing-air.csv.gz
var airGzip []byte

// airFeatures and airTarget are the columns of the task, which predicts log PM2.5 six hours ahead from current values.
var (
	airFeatures = []string{
		"lpm", "lpm3", "lpm6", "lpm24", "lpm10", "lso2", "lno2", "lco", "lo3", "temp", "dtemp", "pres", "dpres", "dewp",
		"spread",
		"rain", "wu", "wv", "wspm", "hs", "hc",
	}
	airTarget = "lpm_next6"
)

// files describes the data files of the demo: one file for each station's own rows, and one for the held-out year of
// all stations.
type files struct {
	features []string
	target   string
	stations []string // names of the stations, sorted
	train    []string // paths of the training files, in the order of stations
	held     string
	rows     []int // number of training rows of each station; nil if unknown
}

// writeData writes the embedded data set to a folder.
func writeData(dir string) (*files, error) {
	header, rows, err := readAir()
	if err != nil {
		return nil, err
	}
	station, test := slices.Index(header, "station"), slices.Index(header, "test")
	byFile := map[string][][]string{}
	f := files{features: airFeatures, target: airTarget}
	for _, row := range rows {
		name := "held-out"
		if row[test] == "0" {
			name = row[station]
			if !slices.Contains(f.stations, name) {
				f.stations = append(f.stations, name)
			}
		}
		byFile[name] = append(byFile[name], row)
	}
	slices.Sort(f.stations)
	path := func(name string) string { return filepath.Join(dir, name+".csv") }
	for name, rows := range byFile {
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		if err := w.WriteAll(append([][]string{header}, rows...)); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path(name), b.Bytes(), 0o600); err != nil {
			return nil, err
		}
	}
	for _, s := range f.stations {
		f.train = append(f.train, path(s))
	}
	f.held = path("held-out")
	return &f, nil
}

func readAir() (header []string, rows [][]string, err error) {
	z, err := gzip.NewReader(bytes.NewReader(airGzip))
	if err != nil {
		return nil, nil, fmt.Errorf("read embedded data: %w", err)
	}
	all, err := csv.NewReader(z).ReadAll()
	if err != nil {
		return nil, nil, fmt.Errorf("read embedded data: %w", err)
	}
	return all[0], all[1:], nil
}

func (f *files) load(path string) (*learner.Samples[float32], error) {
	return sources.ReadCSVFile[float32](path, f.features, f.target)
}
