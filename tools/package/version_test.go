package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	const at = "2026-11-21T16:15:02Z"
	tests := []struct{ text, debian, alpine, python string }{
		{"v0.2.0", "0.2.0", "0.2.0", "0.2.0"},
		{"v0.2.0+dirty", "0.2.0+dirty", "0.2.0", "0.2.0"},
		{"v0.2.0-rc.1", "0.2.0~rc.1", "0.2.0_rc1", "0.2.0rc1"},
		{"v0.2.0-beta2", "0.2.0~beta2", "0.2.0_beta2", "0.2.0b2"},
		{"v0.0.0-20261121161502-993043bce1a2", "0.0.0~20261121161502.993043bce1a2", "0.0.0_alpha20261121161502",
			"0.0.0a20261121161502"},
		{"v0.2.1-0.20261121161502-993043bce1a2+dirty", "0.2.1~0.20261121161502.993043bce1a2+dirty",
			"0.2.1_alpha20261121161502", "0.2.1a20261121161502"},
		{"v0.2.0-rc.1.0.20261121161502-993043bce1a2", "0.2.0~rc.1.0.20261121161502.993043bce1a2",
			"0.2.0_alpha20261121161502", "0.2.0a20261121161502"},
	}
	for _, tt := range tests {
		v, err := versionOf(&debug.BuildInfo{Main: debug.Module{Version: tt.text},
			Settings: []debug.BuildSetting{{Key: "vcs.time", Value: at}}})
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if got := v.debian(); got != tt.debian {
			t.Errorf("%s: Debian %q, want %q", tt.text, got, tt.debian)
		}
		if got, err := v.alpine(); err != nil || got != tt.alpine {
			t.Errorf("%s: Alpine %q (%v), want %q", tt.text, got, err, tt.alpine)
		}
		if got, err := v.python(); err != nil || got != tt.python {
			t.Errorf("%s: Python %q (%v), want %q", tt.text, got, err, tt.python)
		}
	}
	if _, err := (version{text: "v0.2.0-spring"}).alpine(); err == nil || !strings.Contains(err.Error(), "-rc.N") {
		t.Errorf("a version that Alpine cannot write: error %v, want one that says which it can", err)
	}
}

func TestVersionUnknown(t *testing.T) {
	for _, info := range []*debug.BuildInfo{{}, {Main: debug.Module{Version: "(devel)"}},
		{Main: debug.Module{Version: "v1.0.0"}}} {
		if v, err := versionOf(info); err == nil {
			t.Errorf("build info %q gives the version %v, want an error", info.Main.Version, v)
		}
	}
}
