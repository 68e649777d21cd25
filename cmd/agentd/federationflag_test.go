package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// TestFederationFlag checks that commands for one federation require the federation's name if the device is in several
// federations, and use the data in the entry of this federation. Other commands act on all federations.
func TestFederationFlag(t *testing.T) {
	dir := t.TempDir()
	power := filepath.Join(dir, "power")
	if err := os.Mkdir(power, 0o700); err != nil {
		t.Fatal(err)
	}
	k, err := modelfile.OpenKeptModels(store.LocalDisk, power)
	if err == nil {
		err = k.Install(linearModel(7), 3, wire.ModelRef{})
	}
	if err != nil {
		t.Fatal(err)
	}
	put := putIn(t, dir)
	rows := put("rows.csv", "a;b\n1;0\n")
	file := put("agentd.yaml", fmt.Sprintf("state_dir: %s\nid: a\ndata: {csv: %s}\nfederations:\n"+
		"  - federation: air\n    data: {csv: none.csv}\n"+
		"  - federation: power\n    broker: {url: \"tcp://127.0.0.1:1\"}\n    data: {delimiter: \";\"}\n", dir, rows))
	task := put("task.yaml", "task: {name: x, features: [a], target: b, min_rows: 1}\n")
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"model", "list"}, 2, "choose one with --federation air or --federation power"},
		{[]string{"model", "list", "--federation", "powr"}, 2, `unknown federation "powr"`},
		{[]string{"model", "list", "--federation", "power"}, 0, "2/7"},
		{[]string{"model", "list", "--federation", "air"}, 1, "no such model in "},
		{[]string{"predict", rows}, 2, "choose one"},
		{[]string{"predict", rows, "--federation", "power"}, 0, "2,105\n"},
		{[]string{"data", "check", "--task", task}, 2, "choose one"},
		{[]string{"data", "check", "--task", task, "--federation", "power"}, 1,
			"the data contains 1 training rows, but the task requires at least 10"},
		{[]string{"data", "check", "--task", task, "--federation", "air"}, 1, "none.csv"},
		{[]string{"status", "--federation", "powr"}, 2, `unknown federation "powr"`},
		{[]string{"status"}, 1, filepath.Join(dir, "air")},
		{[]string{"status", "--federation", "power"}, 1, filepath.Join(dir, "power")},
	} {
		code, out, problems := clitest.Run(rootCommand(), append(tt.args, "--config", file)...)
		if code != tt.code || !strings.Contains(out+problems, tt.says) {
			t.Errorf("%v: exit status %d, want %d, and %q in\n%s%s", tt.args, code, tt.code, tt.says, out, problems)
		}
	}
}
