package openwrt

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// procd is a shell script that simulates OpenWrt's service manager procd. procd records the calls of the init script.
// Its fake program accepts or rejects the configuration.
const procd = `
extra_command() { :; }
procd_open_instance() { echo open; }
procd_close_instance() { echo close; }
procd_set_param() { echo set "$@"; }
procd_send_signal() { echo signal "$@"; }
. ./agentd.init
PROG=$1
"$2" || echo failed
`

// call runs a function of the init script and returns the recorded calls. If good is false, the fake program rejects
// the configuration.
func call(t *testing.T, function string, good bool) []string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agentd")
	text := "#!/bin/sh\n[ \"$*\" = 'config check --config /etc/agentd/agentd.yaml' ]\n"
	if !good {
		text = "#!/bin/sh\necho 'agentd.yaml:3: unknown key' >&2\nexit 78\n"
	}
	if err := os.WriteFile(program, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", procd, "sh", program, function).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(string(out), program, "PROG")), "\n")
}

func TestStart(t *testing.T) {
	got := call(t, "start_service", true)
	for _, want := range []string{"open", "set command PROG run --config /etc/agentd/agentd.yaml",
		"set respawn 3600 5 0", "set reload_signal HUP", "close"} {
		if !slices.Contains(got, want) {
			t.Errorf("start asks procd for\n%s\nwithout %q", strings.Join(got, "\n"), want)
		}
	}
	if got := call(t, "start_service", false); !slices.Equal(got, []string{"failed"}) {
		t.Errorf("start with a bad configuration: %q, want a failure and nothing of procd", got)
	}
}

func TestReload(t *testing.T) {
	if got := call(t, "reload_service", true); !slices.Equal(got, []string{"signal agentd * HUP"}) {
		t.Errorf("reload: %q, want a signal", got)
	}
	if got := call(t, "reload_service", false); !slices.Equal(got, []string{"failed"}) {
		t.Errorf("reload with a bad configuration: %q, want the daemon left alone", got)
	}
}
