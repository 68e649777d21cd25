package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// TestConfigCheckOpensData checks that problems with the data file are reported as warnings with the line of the
// configuration key. They do not prevent the agent from starting.
func TestConfigCheckOpensData(t *testing.T) {
	dir := t.TempDir()
	put := putIn(t, dir)
	key := filepath.Join(dir, "agent.key")
	code, public, problems := clitest.Run(rootCommand(), "key", "new", key)
	if code != 0 {
		t.Fatal(problems)
	}
	comma, semicolon := put("comma.csv", "Time,PM2.5 (µg/m³),y\n"), put("semicolon.csv", "\"t\";\"a\";\"y\"\n")
	for _, tt := range []struct{ section, says string }{
		{"csv: " + comma, ""},
		{"csv: " + comma + ", time: Time, columns: {pm25: \"PM2.5 (µg/m³)\"}", ""},
		{"source: lines, command: [sh, -c, exit], columns: {a: b}", ""},
		{"trainers", ""}, // external training programs have rows of their own
		{"csv: " + dir + "/none.csv", "data.csv: open " + dir + "/none.csv: no such file or directory"},
		{"csv: " + dir + "/*.txt", "data.csv: " + dir + "/*.txt: no file matches"},
		{"csv: " + put("empty.csv", ""), "the first line must name the columns"},
		{"csv: " + comma + ", time: time", `data.time: ` + comma + ` has no column "time" in its header; did you mean ` +
			`"Time"?`},
		{"csv: " + comma + ", columns: {pm25: PM25, y: z}", `data.columns.pm25: ` + comma + ` has no column "PM25" in ` +
			`its header; did you mean "PM2.5 (µg/m³)"?`},
		{"csv: " + comma + ", columns: {pm25: PM25, y: z}", `data.columns.y: ` + comma + ` has no column "z"`},
		{"csv: " + comma + ", where: {station: \"1\"}", `data.where.station: `},
		{"csv: " + semicolon + ", time: t", `data.delimiter: the columns of ` + semicolon + ` are separated by ";"`},
		{"csv: " + semicolon, `data.delimiter: `},
	} {
		file := put("agentd.yaml", fmt.Sprintf("federation: air\nid: a\n"+
			"identity: {key_file: %s, coordinator_key: %q}\ndata: {%s}\n", key, strings.TrimSpace(public), tt.section))
		if tt.section == "trainers" {
			file = put("agentd.yaml", fmt.Sprintf("federation: air\nid: a\n"+
				"identity: {key_file: %s, coordinator_key: %q}\ntrainers: [{name: t, socket: /run/t}]\n", key,
				strings.TrimSpace(public)))
		}
		code, out, problems := clitest.Run(rootCommand(), "config", "check", "--config", file)
		good := out == file+" is valid\n" && problems == ""
		if tt.says != "" {
			good = strings.HasPrefix(out, file+" is valid, but the configured data source cannot be used now") &&
				strings.HasPrefix(problems, "agentd: warning: "+file+":4:") && strings.Contains(problems, tt.says)
		}
		if code != 0 || !good {
			t.Errorf("%s: exit status %d, %s%s\nwant %q", tt.section, code, out, problems, tt.says)
		}
	}
}

// TestConfigsOnPages checks that the MQTT configurations on the documentation pages about data are valid.
func TestConfigsOnPages(t *testing.T) {
	dir := t.TempDir()
	put := putIn(t, dir)
	key := filepath.Join(dir, "agent.key")
	code, public, problems := clitest.Run(rootCommand(), "key", "new", key)
	if code != 0 {
		t.Fatal(problems)
	}
	for _, page := range []string{"DATA.md", "howto/read-sensors-over-mqtt.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			if !strings.Contains(block, "data:\n") || strings.Contains(block, "task:") {
				continue
			}
			if !strings.Contains(block, "federation:") {
				block = "federation: hall\nid: a\nbroker: {url: \"tcp://broker.example:1883\"}\n" + block
			}
			if !strings.Contains(block, "source:") { // the block shows only part of a section
				block = strings.Replace(block, "data:\n", "data:\n  source: mqtt\n", 1)
			}
			if !strings.Contains(block, "columns:") {
				block = strings.Replace(block, "source: mqtt\n", "source: mqtt\n  columns: {p: tele/a/SENSOR v}\n", 1)
			}
			if !strings.Contains(block, "readings:") {
				block += "readings: {broker: {url: \"tcp://gateway.example:1883\"}}\n"
			}
			checked++
			file := put("page.yaml", fmt.Sprintf("%sidentity: {key_file: %s, coordinator_key: %q}\n", block, key,
				strings.TrimSpace(public)))
			code, out, problems := clitest.Run(rootCommand(), "config", "check", "--config", file)
			if code != 0 || out != file+" is valid\n" || problems != "" {
				t.Errorf("%s: exit status %d, %s%s\n%s", page, code, out, problems, block)
			}
		}
		if checked == 0 {
			t.Errorf("%s has no configuration", page)
		}
	}
}

// putIn returns a function that writes a file to dir and returns its path.
func putIn(t *testing.T, dir string) func(name, text string) string {
	return func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
}
