package systemd

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the unit files of the packages")

func units() []Unit { return []Unit{Agent(), Coordinator()} }

func textOf(t *testing.T, u Unit) string {
	t.Helper()
	text, err := u.Text()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestShippedUnits checks that the unit files in the packages match the generated text.
func TestShippedUnits(t *testing.T) {
	for _, u := range units() {
		file, text := u.Program+".service", textOf(t, u)
		if *update {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		shipped, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(shipped) != text {
			t.Errorf("%s is not what unit.service.in comes to; go test -update writes it", file)
		}
		if left := regexp.MustCompile(`@[A-Z][A-Za-z]*@`).FindString(text); left != "" {
			t.Errorf("%s: %s is not filled in", file, left)
		}
	}
}

// TestMemory checks that GOMEMLIMIT is four fifths of the unit's memory limit.
func TestMemory(t *testing.T) {
	for _, u := range units() {
		limits := strings.Join(u.Limits, "\n")
		number := func(pattern string) float64 {
			found := regexp.MustCompile(pattern).FindStringSubmatch(limits)
			if found == nil {
				t.Fatalf("%s has no %s", u.Program, pattern)
			}
			x, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		if ratio := number(`GOMEMLIMIT=(\d+)MiB`) / number(`MemoryMax=(\d+)M`); ratio < 0.78 || ratio > 0.82 {
			t.Errorf("%s: GOMEMLIMIT is %.2f of MemoryMax, want four fifths", u.Program, ratio)
		}
	}
}

// TestSystemdTakesIt checks the units with systemd-analyze. systemd must know every line of the units, and the security
// exposure of the services must be low.
func TestSystemdTakesIt(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("systemd-analyze is not installed, and CI needs it (Debian's package systemd)")
		}
		t.Skip("systemd-analyze is not installed (Debian's package systemd)")
	}
	elsewhere := Agent()
	elsewhere.Config, elsewhere.StateDir, elsewhere.User = "/srv/agentd.yaml", "/srv/state", "sensors"
	for _, u := range append(units(), elsewhere) {
		u.Executable = "/bin/true" // systemd-analyze verify requires that the file exists
		file := filepath.Join(t.TempDir(), u.Program+".service")
		if err := os.WriteFile(file, []byte(textOf(t, u)), 0o644); err != nil {
			t.Fatal(err)
		}
		// Check the output, because systemd-analyze verify exits with 0 even if it reports problems.
		if out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v\n%s", err, out)
		}
		// The threshold is the maximum exposure level times ten.
		if out, err := exec.Command(analyze, "security", "--offline=true", "--threshold=15",
			"--no-pager", file).CombinedOutput(); err != nil {
			t.Errorf("systemd-analyze security: %v\n%s", err, out)
		}
	}
}

// TestUnfitNames checks that Text refuses values that contain special characters.
func TestUnfitNames(t *testing.T) {
	for _, name := range []string{"/opt/my agent/agentd", "/opt/50%/agentd", "/opt/$HOME", `/opt/"x"`, "/opt/{{x}}",
		"/opt/a\nUser=root", `/opt/a\x`, "/opt/a;b"} {
		u := Agent()
		u.Executable = name
		if _, err := u.Text(); err == nil || !strings.Contains(err.Error(), "the program's path") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
