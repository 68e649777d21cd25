package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRemediesNameCommands checks that every command that a condition's remedy mentions exists.
// TestRemediesNameCommands runs the command with --help.
func TestRemediesNameCommands(t *testing.T) {
	found := 0
	for _, name := range []string{"agentd/testdata/agent-surface.txt",
		"coordinatord/testdata/coordinator-surface.txt"} {
		file := filepath.Join(root, "internal", name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, conditions, _ := strings.Cut(string(text), "\nconditions\n")
		for _, m := range regexp.MustCompile("`((?:agentd|coordinator) [^`]+)`").FindAllStringSubmatch(conditions, -1) {
			found++
			checkWords(t, &shown{page: file}, strings.ReplaceAll(m[1], "VERSION", "7"))
		}
	}
	if found < 10 {
		t.Errorf("found only %d commands: are the conditions still in these files?", found)
	}
}
