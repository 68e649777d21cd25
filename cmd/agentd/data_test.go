package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

var update = flag.Bool("update", false, "rewrite testdata")

const (
	rowsTask = `
task:
  name: plane
  features: [a, b]
  target: y
`
	readingsTask = `
task:
  name: air
  grid: {step: 1h, lateness: 10m}
  inputs:
    - {name: pm25, unit: "µg/m³", range: [0, 1000]}
    - {name: wd, classes: [N, S]}
  features: [pm25, wd]
  target: pm25 in 2h
`
)

// plane returns CSV rows of y = 2a − b + 1 in order of time. The function change may change the text of a line.
func plane(change func(line int, text string) string) string {
	var b strings.Builder
	for line := 1; line <= 41; line++ {
		i := line - 2
		text := fmt.Sprintf("2026-03-%02dT%02d:00:00Z,%g,%g,%g", 1+i/24, i%24, 0.5*float64(i%7), 0.25*float64(i%5),
			float64(i%7)-0.25*float64(i%5)+1)
		if line == 1 {
			text = "t,a,b,y"
		}
		if change != nil {
			text = change(line, text)
		}
		b.WriteString(text + "\n")
	}
	return b.String()
}

// cells returns a change function that replaces single cells, identified by line and column numbers from 0.
func cells(changed map[[2]int]string) func(int, string) string {
	return func(line int, text string) string {
		fields := strings.Split(text, ",")
		for i := range fields {
			if to, there := changed[[2]int{line, i}]; there {
				fields[i] = to
			}
		}
		return strings.Join(fields, ",")
	}
}

// german formats a line like a German spreadsheet, with semicolons between cells and decimal commas.
func german(_ int, text string) string {
	text = strings.NewReplacer(",", ";", ".", ",").Replace(text)
	text = strings.TrimSuffix(strings.Replace(text, ":00:00Z", ":00", 1), "\n")
	if day, rest, ok := strings.Cut(text, "T"); ok {
		part := strings.Split(day, "-")
		text = part[2] + "." + part[1] + "." + part[0] + " " + rest
	}
	return text + "\r"
}

// air returns lines of readings from air sensors, which the function change may modify.
func air(change func(int, string) string) string {
	return plane(func(line int, text string) string {
		field := strings.Split(text, ",")
		if line == 1 {
			return "time,PM2.5 (µg/m³),wd"
		}
		text = fmt.Sprintf("%s,%s,%s", field[0], field[1], []string{"N", "S"}[line%2])
		if change != nil {
			text = change(line, text)
		}
		return text
	})
}

func compressedText(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	// The text is not compressed, so that the bytes do not depend on the version of the compression library.
	z, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestDataCheck compares the output of `agentd data check` for typical files with golden files.
func TestDataCheck(t *testing.T) {
	for _, tt := range dataChecks(t) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put := putIn(t, dir)
			if tt.section != "" {
				tt.section = ", " + tt.section
			}
			if tt.file == "" {
				tt.file = "none.csv"
			} else {
				put(tt.file, tt.text)
			}
			args := []string{"data", "check", "--config", put("agentd.yaml", fmt.Sprintf("federation: air\nid: a\n"+
				"data: {csv: %q%s}\n", filepath.Join(dir, tt.file), tt.section))}
			if tt.task != "" {
				args = append(args, "--task", put("task.yaml", tt.task))
			}
			code, out, problems := clitest.Run(rootCommand(), args...)
			got := fmt.Sprintf("%sexit status %d\n", strings.ReplaceAll(out+problems, dir+"/", ""), code)
			if code != tt.code {
				t.Errorf("exit status %d, want %d", code, tt.code)
			}
			golden(t, strings.ReplaceAll(tt.name, " ", "_"), got)
			if code, out, _ := clitest.Run(rootCommand(), append(args, "--json")...); code != tt.code ||
				strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "{") {
				t.Errorf("--json: exit status %d, %s", code, out)
			}
		})
	}
}

// dataCheck is a test case: a data file, the configuration section and the task with which it is read, and the expected
// exit status.
type dataCheck struct {
	name, section, task, file, text string
	code                            int
}

func dataChecks(t *testing.T) []dataCheck {
	wrongCells := cells(map[[2]int]string{{5, 1}: "", {7, 1}: "NaN", {9, 2}: "NA", {11, 2}: "-", {13, 3}: "warm",
		{15, 1}: "1e39", {17, 0}: "yesterday", {19, 2}: "21.5 C"})
	zipped := compressedText(t, plane(nil))
	return []dataCheck{
		{"good", "time: t", rowsTask, "rows.csv", plane(nil), 0},
		{"held out", "time: t}\nevaluation: {held_out: 0.3", rowsTask, "rows.csv", plane(nil), 0},
		{"one empty cell", "time: t", rowsTask, "rows.csv", plane(cells(map[[2]int]string{{5, 1}: ""})), 0},
		{"one empty cell refused", "missing: refuse", rowsTask, "rows.csv",
			plane(cells(map[[2]int]string{{5, 1}: ""})), 1},
		{"many wrong cells", "time: t", rowsTask, "rows.csv", plane(wrongCells), 0},
		{"above max_bad", "time: t, max_bad: 0.1", rowsTask, "rows.csv", plane(wrongCells), 1},
		{"spreadsheet", "time: t", rowsTask, "rows.csv", "\ufeff" + plane(german), 1},
		{"spreadsheet configured", `time: t, delimiter: ";", decimal: ",", time_format: "02.01.2006 15:04"`, rowsTask,
			"rows.csv", "\ufeff" + plane(german), 0},
		{"quoted decimal commas", "", rowsTask, "rows.csv",
			"a,b,y\n" + strings.Repeat("\"1,5\",\"0,25\",\"3,75\"\n\"1\",\"2\",\"1\"\n", 10), 1},
		{"decimal commas", "", rowsTask, "rows.csv", "a,b,y\n" + strings.Repeat("1,5,0,25,3,75\n", 3), 1},
		{"header", "time: time, columns: {y: Y}", rowsTask, "rows.csv", strings.Replace(plane(nil), "t,a,b,y",
			"Time,A,B,Y", 1), 1},
		{"header twice", "", rowsTask, "rows.csv", "a,b,y,a\n1,2,3,4\n", 1},
		{"order", "time: t", rowsTask, "rows.csv", plane(cells(map[[2]int]string{{9, 0}: "2026-02-01T00:00:00Z"})), 0},
		{"future", "time: t", rowsTask, "rows.csv", strings.ReplaceAll(plane(nil), "2026-", "2126-"), 0},
		{"clocks go back", `time: t, time_zone: Europe/Berlin, time_format: "2006-01-02 15:04"`, rowsTask, "rows.csv",
			"t,a,b,y\n2025-10-26 01:30,1,2,3\n2025-10-26 02:00,1,2,3\n2025-10-26 02:30,1,2,3\n" +
				"2025-10-26 02:00,1,2,3\n2025-10-26 02:30,1,2,3\n2025-10-26 03:00,1,2,3\n", 1},
		{"fields and quotes", "", rowsTask, "rows.csv", "a,b,y\n1,2\n1,2,3\n1,\"2\" x,3\n1,2,3,4\n1,2,3\n", 1},
		{"where", `where: {station: "9"}`, rowsTask, "rows.csv", "a,b,y,station\n1,2,3,1\n", 1},
		{"too few", "", rowsTask, "rows.csv", "a,b,y\n1,2,3\n", 1},
		{"gz", "time: t", rowsTask, "rows.csv.gz", zipped, 0},
		{"gz cut off", "time: t", rowsTask, "rows.csv.gz", zipped[:len(zipped)-20], 1},
		{"no file", "", rowsTask, "", "", 1},
		{"empty file", "", rowsTask, "rows.csv", "", 1},
		{"readings", `time: time, columns: {pm25: "PM2.5 (µg/m³)"}`, readingsTask, "air.csv", air(nil), 0},
		{"wrong readings", "time: time", readingsTask, "air.csv", air(cells(map[[2]int]string{{9, 1}: "2000"})), 1},
		{"some wrong readings", `time: time, columns: {pm25: "PM2.5 (µg/m³)"}`, readingsTask, "air.csv",
			air(cells(map[[2]int]string{{5, 1}: "", {9, 1}: "2000", {11, 2}: "NNW", {13, 1}: "high",
				{20, 0}: "2026-03-01T00:00:01Z"})), 0},
		{"readings against those before", `time: time, columns: {pm25: "PM2.5 (µg/m³)"}`,
			strings.Replace(readingsTask, "1000]}", "1000], jump: 100}", 1), "air.csv",
			air(cells(map[[2]int]string{{9, 1}: "900", {20, 0}: "2026-03-01T17:00:00Z"})), 0},
		{"readings without a time", "", readingsTask, "air.csv", air(nil), 1},
		{"no task", "time: time", "", "air.csv", air(cells(map[[2]int]string{{9, 1}: "x"})), 0},
		{"no task spreadsheet", "", "", "rows.csv", plane(german), 1},
		{"no task bad time", "time: t", "", "rows.csv", plane(cells(map[[2]int]string{{5, 0}: "yesterday"})), 0},
		{"no task decimal commas", `delimiter: ";"`, "", "rows.csv",
			"station;pm25\n" + strings.Repeat("N;1,5\nS;2,5\n", 10), 1},
	}
}

// golden compares a text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "datacheck", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestDataCheckRefuses checks that problems in the configuration file and the task file of the command are reported
// with their lines.
func TestDataCheckRefuses(t *testing.T) {
	dir := t.TempDir()
	config, task := filepath.Join(dir, "agentd.yaml"), filepath.Join(dir, "task.yaml")
	if err := os.WriteFile(task, []byte("task:\n  naem: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, says := range map[string]string{
		"data: {csv: a.csv, delimeter: \";\"}\n":        `did you mean "delimiter"?`,
		"data: {csv: a.csv, time_zone: Europe/Berln}\n": `unknown time zone "Europe/Berln"`,
		"data: {csv: a.csv}\n":                          `task.yaml:2:3: unknown key "naem"; did you mean "name"?`,
	} {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, _, problems := clitest.Run(rootCommand(), "data", "check", "--config", config, "--task", task)
		if code != 78 || !strings.Contains(problems, says) {
			t.Errorf("exit status %d, %s, want %q", code, problems, says)
		}
	}
}
