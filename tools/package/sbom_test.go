package main

import (
	"crypto/sha256"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestBill(t *testing.T) {
	b := &binary{
		version: version{"v0.2.0+dirty", time.Date(2026, 11, 21, 16, 15, 2, 0, time.UTC)},
		info: &debug.BuildInfo{
			GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/us", Version: "v0.2.0+dirty"},
			Deps: []*debug.Module{
				{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:abc="},
				{Path: "example.com/b", Version: "v1.0.0",
					Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0", Sum: "h1:def="}},
			},
			Settings: []debug.BuildSetting{{Key: "GOARCH", Value: "arm"}},
		},
	}
	bill := billOf("agentd", b, sha256.Sum256([]byte("binary")))
	var names []string
	for _, c := range bill.Components {
		names = append(names, c.PURL)
	}
	const want = "pkg:golang/std@1.26.8 pkg:golang/example.com/a@v1.0.0 pkg:golang/example.com/c@v2.0.0"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("components %s, want %s", got, want)
	}
	if got, want := strings.Join(bill.Dependencies[0].DependsOn, " "), want; got != want {
		t.Errorf("the program depends on %s, want %s", got, want)
	}
	if got, want := bill.Metadata.Component.PURL, "pkg:golang/example.com/us@v0.2.0%2Bdirty"; got != want {
		t.Errorf("the program is %s, want %s", got, want)
	}
	if again := billOf("agentd", b, sha256.Sum256([]byte("binary"))).SerialNumber; again != bill.SerialNumber {
		t.Errorf("serial number %s, then %s of the same binary", bill.SerialNumber, again)
	}
	if other := billOf("agentd", b, sha256.Sum256([]byte("other"))).SerialNumber; other == bill.SerialNumber {
		t.Errorf("two binaries have the serial number %s", other)
	}
}
