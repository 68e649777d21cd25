package main

import (
	"errors"
	"fmt"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// version is a program version in Go's format: v0.2.0, v0.2.0-rc.1, or v0.2.1-0.20261121161502-993043bce1a2 for a
// commit between two releases. The suffix +dirty marks uncommitted changes.
type version struct {
	text string
	time time.Time // commit time, which is the date of all generated files
}

// versionOf returns the version and the commit time that the go command recorded in a binary.
func versionOf(info *debug.BuildInfo) (version, error) {
	v := version{text: info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			t, err := time.Parse(time.RFC3339, s.Value)
			if err != nil {
				return v, err
			}
			v.time = t.UTC()
		}
	}
	if !strings.HasPrefix(v.text, "v") || v.time.IsZero() {
		return v, errors.New("the build knows no version: package a git repository with a commit")
	}
	return v, nil
}

// debian returns the version in the format of dpkg and rpm. A pre-release has a tilde, as in 0.2.0~rc.1, so that it
// sorts before the release.
func (v version) debian() string {
	number, rest, pre := strings.Cut(strings.TrimPrefix(v.text, "v"), "-")
	if pre {
		number += "~" + strings.ReplaceAll(rest, "-", ".")
	}
	return number
}

// python returns the version in the format of pip, such as 0.2.0rc1.
func (v version) python() (string, error) {
	text, err := v.alpine()
	return strings.NewReplacer("_alpha", "a", "_beta", "b", "_rc", "rc").Replace(text), err
}

var (
	pseudo     = regexp.MustCompile(`^([0-9.]+)-(?:.*\.)?([0-9]{14})-[0-9a-f]{12}$`)
	prerelease = regexp.MustCompile(`^([0-9.]+)-(alpha|beta|rc)\.?([0-9]+)$`)
	plain      = regexp.MustCompile(`^[0-9.]+$`)
)

// alpine returns the version in the format of apk, which cannot contain a commit hash. A version between two releases
// becomes an alpha version that is numbered by the commit time.
func (v version) alpine() (string, error) {
	text, _, _ := strings.Cut(strings.TrimPrefix(v.text, "v"), "+")
	if m := pseudo.FindStringSubmatch(text); m != nil {
		return m[1] + "_alpha" + m[2], nil
	}
	if m := prerelease.FindStringSubmatch(text); m != nil {
		return m[1] + "_" + m[2] + m[3], nil
	}
	if plain.MatchString(text) {
		return text, nil
	}
	return "", fmt.Errorf("apk has no such version as %s: tag a number, or one with -alpha.N, -beta.N or -rc.N", v.text)
}
