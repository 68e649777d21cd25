// Command package makes what we release: for each program and processor a
// .deb, an .rpm, an .apk, a tarball and a bill of materials, and the checksums
// of all. The same commit gives the same bytes, in whatever folder and at
// whatever time. The version is the one that the go command reads from git.
//
// It has a module of its own, so that what it needs never enters the one of
// the programs.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", ".", "the `folder` of the repository")
	out := flag.String("out", "dist", "the `folder` to fill; what it held is removed")
	archs := flag.String("arch", "", "`names` of processors, separated by commas (default: all)")
	flag.Parse()
	if err := run(*root, *out, *archs); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

// run fills out with what is released of the repository at root.
func run(root, out, archs string) error {
	chosen, err := choose(archs)
	if err != nil {
		return err
	}
	stage, err := os.MkdirTemp("", "fedmesh-package-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"agentd", "coordinator"} {
		if err := release(root, out, stage, name, chosen); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return writeSums(out)
}

// release makes everything of one program.
func release(root, out, stage, name string, chosen []target) error {
	p := &program{name: name, root: root}
	for _, t := range chosen {
		b, err := build(root, filepath.Join(stage, name+"-"+t.name), name, t)
		if err != nil {
			return err
		}
		if p.files == nil { // the first: the rest of the files is the same for all processors
			if err := p.gather(filepath.Join(stage, name), b); err != nil {
				return err
			}
		}
		for _, write := range []func(*program, *binary, string) error{writeDeb, writeRPM, writeAPK, writeTarball, writeSBOM} {
			if err := write(p, b, out); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return nil
}

// choose returns the targets with the names in a list, or all.
func choose(names string) ([]target, error) {
	if names == "" {
		return targets, nil
	}
	var chosen []target
next:
	for name := range strings.SplitSeq(names, ",") {
		for _, t := range targets {
			if t.name == name {
				chosen = append(chosen, t)
				continue next
			}
		}
		return nil, fmt.Errorf("there is no processor %q", name)
	}
	return chosen, nil
}
