package linux

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScripts checks the shell scripts for syntax errors with dash and busybox, and checks that all placeholders are
// known.
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("*/*")
	if err != nil || len(scripts) < 10 {
		t.Fatalf("scripts %v (%v)", scripts, err)
	}
	known := regexp.MustCompile(`@(NAME|UPPER)@`)
	for _, script := range scripts {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if odd := regexp.MustCompile(`@[A-Za-z]+@`).Find(known.ReplaceAll(text, nil)); odd != nil {
			t.Errorf("%s: nobody fills in %s", script, odd)
		}
		if base := filepath.Base(script); base == "copyright" || strings.HasPrefix(base, "lintian-overrides") {
			continue
		}
		if out, err := exec.CommandContext(t.Context(), "sh", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", script, err, out)
		}
	}
}
