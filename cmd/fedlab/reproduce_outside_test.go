package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/clitest"
)

// TestReproduceOutside checks that experiments that need external data run only if they are named, and that they report
// missing data.
func TestReproduceOutside(t *testing.T) {
	for id, lacks := range map[string]string{"har": "har.file", "fashion": "dataset-fashion-mnist"} {
		code, stdout, _ := clitest.Run(rootCommand(), "reproduce", id, "--set", "fashion.folder=/nowhere")
		if id == "har" {
			code, stdout, _ = clitest.Run(rootCommand(), "reproduce", id)
		}
		if code == 0 || !strings.Contains(stdout, lacks) {
			t.Errorf("%s: exit status %d: %s", id, code, stdout)
		}
	}
	text := "subject,test,label,f1,f2\n"
	for i := range 600 { // the class depends on both features
		text += fmt.Sprintf("%d,0,%d,%d,%d\n", 1+i%30, 1+i/2%6, i/2%6+i%2, -(i/2%6)+i%3)
	}
	file := filepath.Join(t.TempDir(), "har.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stdout, stderr := clitest.Run(rootCommand(), "reproduce", "har", "--json", "--quick", "--set", "har.file="+file,
		"--set", "har.rounds=3")
	for _, key := range []string{`"round_3":0.`, `"alone":0.`, `"central":0.`} {
		if !strings.Contains(strings.ReplaceAll(stdout, ": ", ":"), key) {
			t.Errorf("no %s in %s%s", key, stdout, stderr)
		}
	}
}
