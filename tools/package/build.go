package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// target is a CPU architecture for which release files are built. Debian's name armhf covers both ARMv7 and ARMv6
// (first Raspberry Pi).
type target struct {
	name   string   // architecture name in the names of release files
	env    []string // environment variables for the go command
	nfpm   string   // name that nfpm uses; nfpm translates it for each package format
	debian string   // architecture name in the names of .deb files
	oci    string   // platform of the container image; "" for a target without an image
}

func (t target) String() string { return t.name }

var targets = []target{
	{"amd64", []string{"GOARCH=amd64", "GOAMD64=v1"}, "amd64", "amd64", "linux/amd64"},
	{"arm64", []string{"GOARCH=arm64", "GOARM64=v8.0"}, "arm64", "arm64", "linux/arm64"},
	{"armv7", []string{"GOARCH=arm", "GOARM=7"}, "arm7", "armhf", "linux/arm/v7"},
	{"armv6", []string{"GOARCH=arm", "GOARM=6"}, "arm6", "armhf-v6", ""},
}

// binary is a program that was compiled for one target.
type binary struct {
	target
	path    string
	info    *debug.BuildInfo
	version version
}

// build compiles a program for a target, with the same flags as `make build`.
func build(root, dir, name string, t target) (*binary, error) {
	b := &binary{target: t, path: filepath.Join(dir, name)}
	flags, err := os.ReadFile(filepath.Join(root, "tools", "buildflags"))
	if err != nil {
		return nil, err
	}
	cmd := goCommand(root, slices.Concat([]string{"build"}, strings.Fields(string(flags)),
		[]string{"-buildvcs=true", "-o", b.path, "./cmd/" + name})...)
	cmd.Env = append(cmd.Env, append([]string{"GOOS=linux"}, t.env...)...)
	if _, err := output(cmd); err != nil {
		return nil, err
	}
	if b.info, err = buildinfo.ReadFile(b.path); err != nil {
		return nil, err
	}
	if b.version, err = versionOf(b.info); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return b, nil
}

// setting returns the value of a build setting, such as vcs.revision.
func (b *binary) setting(key string) string {
	for _, s := range b.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// goCommand returns a go command that runs in the folder dir. Its environment makes the build independent of the
// machine.
func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")
	return cmd
}

// output runs a command and returns its standard output. If the command fails, the error contains the standard error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, errs.String(), out)
	}
	return out, nil
}
