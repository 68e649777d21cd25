package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// The following types are the parts of the CycloneDX 1.5 format that writeSBOM needs.
type (
	bom struct {
		Format       string       `json:"bomFormat"`
		SpecVersion  string       `json:"specVersion"`
		SerialNumber string       `json:"serialNumber"`
		Version      int          `json:"version"`
		Metadata     bomMetadata  `json:"metadata"`
		Components   []component  `json:"components"`
		Dependencies []dependency `json:"dependencies"`
	}
	bomMetadata struct {
		Timestamp  string     `json:"timestamp"`
		Component  component  `json:"component"`
		Properties []property `json:"properties"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	dependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn,omitempty"`
	}
)

// writeSBOM writes the software bill of materials (SBOM) of a binary. It reads the list of modules from the binary's
// build information.
func writeSBOM(p *program, b *binary, out string) error {
	text, err := bomText(p.name, b)
	if err != nil {
		return err
	}
	name := p.name + "-" + strings.TrimPrefix(b.version.text, "v") + "-linux-" + b.name + ".cdx.json"
	return put(filepath.Join(out, name), text)
}

// bomText returns the bill of materials (SBOM) of a binary as JSON.
func bomText(name string, b *binary) ([]byte, error) {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(billOf(name, b, sha256.Sum256(data)), "", "  ")
	return append(text, '\n'), err
}

// billOf returns the bill of materials (SBOM) of a binary. sum is the SHA-256 checksum of the binary.
func billOf(name string, b *binary, sum [sha256.Size]byte) bom {
	main := module("application", &debug.Module{Path: b.info.Main.Path, Version: b.version.text})
	main.Name = name
	main.Hashes = []hash{{"SHA-256", fmt.Sprintf("%x", sum)}}
	modules := []component{module("library",
		&debug.Module{Path: "std", Version: strings.TrimPrefix(b.info.GoVersion, "go")})}
	for _, d := range b.info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		modules = append(modules, module("library", d))
	}
	needs := dependency{Ref: main.Ref}
	for _, m := range modules {
		needs.DependsOn = append(needs.DependsOn, m.Ref)
	}
	var built []property
	for _, s := range b.info.Settings {
		built = append(built, property{"go:build:" + s.Key, s.Value})
	}
	return bom{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1, SerialNumber: serial(sum),
		Metadata:     bomMetadata{b.version.time.Format(time.RFC3339), main, built},
		Components:   modules,
		Dependencies: []dependency{needs},
	}
}

func module(kind string, m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	c := component{Type: kind, Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
	if m.Sum != "" {
		// The value from go.sum is a hash of the module's file tree and not of a single file.
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}

// serial returns a UUID (version 8) that is derived from the binary's checksum. Identical builds therefore have
// identical bills of materials.
func serial(sum [sha256.Size]byte) string {
	u := sum[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
