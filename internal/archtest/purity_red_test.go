package archtest

import "testing"

// TestPurityRed tests the purity rules with invalid and valid sources.
func TestPurityRed(t *testing.T) {
	tests := []struct{ name, file, text, want string }{
		{"net", "wire/a.go", `package p; import _ "net"`, "wire/a.go:1: pure package wire imports net:"},
		{"net/http", "learner/a.go", `package p; import _ "net/http"`, "imports net/http:"},
		{"os", "task/a.go", `package p; import _ "os"`, "pure package task imports os:"},
		{"os/exec", "round/a.go", `package p; import _ "os/exec"`, "pure package round imports os/exec:"},
		{"context", "mqtt/transfer/a.go", `package p; import _ "context"`,
			"pure package mqtt/transfer imports context:"},
		{"sync", "d2d/a.go", `package p; import _ "sync"`, "pure package d2d imports sync:"},
		{"sync/atomic", "wire/a.go", `package p; import _ "sync/atomic"`, "imports sync/atomic:"},
		{"log", "wire/a.go", `package p; import _ "log"`, "imports log:"},
		{"log/slog", "wire/a.go", `package p; import _ "log/slog"`, "imports log/slog:"},
		{"syscall", "wire/a.go", `package p; import _ "syscall"`, "imports syscall:"},
		{"runtime/debug", "wire/a.go", `package p; import _ "runtime/debug"`, "imports runtime/debug:"},
		{"runtime", "learner/a.go", `package p; import "runtime"; var n = runtime.NumCPU()`, "uses runtime.NumCPU:"},
		{"architecture", "learner/a.go", `package p; import "runtime"; const arch = runtime.GOARCH`, ""},
		{"crypto/rand", "wire/a.go", `package p; import _ "crypto/rand"`, "imports crypto/rand:"},
		{"prometheus", "round/a.go", `package p; import _ "github.com/prometheus/client_golang/prometheus"`,
			"imports github.com/prometheus/"},
		{"paho", "round/a.go", `package p; import _ "github.com/eclipse/paho.mqtt.golang"`,
			"imports github.com/eclipse/"},
		{"through our own", "round/a.go", `package p; import _ "` + module + `/store"`,
			"imports store, which is not pure"},
		{"dot import", "wire/a.go", `package p; import . "time"`, "dot-imports time"},
		{"goroutine", "round/a.go", `package p; func f() { go f() }`, "starts a goroutine"},
		{"goroutine in a function value", "round/a.go", `package p; var f = func() { go func() {}() }`,
			"starts a goroutine"},
		{"clock as a value", "round/a.go", `package p; import "time"; var now = time.Now`, "uses time.Now"},
		{"clock under another name", "round/a.go", `package p; import t "time"; func f() { t.Sleep(1) }`,
			"uses time.Sleep"},

		{"good", "round/a.go", `package p; import ("io"; "net2/x"; "time"; "` + module + `/wire")
			func f(now time.Time, r io.Reader) time.Duration { return now.Sub(time.Unix(0, 0)) + x.Now() }`, ""},
		{"not a pure package", "agent/a.go",
			`package p; import ("os"; "time"); func f() { go os.Exit(time.Now().Day()) }`, ""},
		{"tests may", "wire/a_test.go", `package p; import _ "os"`, ""},
	}
	for _, clock := range clockReads {
		tests = append(tests, struct{ name, file, text, want string }{
			"time." + clock, "round/a.go", `package p; import "time"; func f() { time.` + clock + `() }`,
			"uses time." + clock + ":",
		})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantComplaint(t, impurities(loadFiles(t, map[string]string{tt.file: tt.text})), tt.want)
		})
	}
}

// TestGlobalRandomnessRed tests globalRandomness with invalid and valid sources.
func TestGlobalRandomnessRed(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"v2", `package p; import "math/rand/v2"; var x = rand.Float64()`,
			"agent/a.go:1: agent draws from the global source with rand.Float64"},
		{"v1", `package p; import "math/rand"; var x = rand.Intn(3)`, "rand.Intn"},
		{"renamed", `package p; import mrand "math/rand/v2"; var x = mrand.N(3)`, "rand.N"},
		{"as a value", `package p; import "math/rand/v2"; var x = rand.Perm`, "rand.Perm"},
		{"injected",
			`package p; import "math/rand/v2"; var x = rand.New(rand.NewPCG(1, 2)).Float64(); func f(r *rand.Rand) { r.Perm(3) }`, ""},
		{"crypto", `package p; import "crypto/rand"; var x = rand.Text()`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wantComplaint(t, globalRandomness(loadFiles(t, map[string]string{"agent/a.go": tt.text})), tt.want)
		})
	}
}
