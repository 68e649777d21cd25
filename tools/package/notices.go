package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// legal matches the paths of licence and notice files, relative to a module's root.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|edl-|epl-|third_party_licenses/)[^/]*$`)

// notices returns the licence texts of all Go modules that are linked into a program. Most licences require that the
// text is distributed with the program.
func notices(root string, info *debug.BuildInfo) ([]byte, error) {
	dirs, err := moduleDirs(root)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("What this program is linked with, and the terms of each.\n")
	for _, m := range append([]*debug.Module{{Path: "std", Version: info.GoVersion}}, info.Deps...) {
		found, err := terms(os.DirFS(dirs[m.Path]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		for _, name := range found {
			text, err := os.ReadFile(filepath.Join(dirs[m.Path], name))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "\n%s\n%s %s: %s\n%s\n\n", strings.Repeat("=", 80), m.Path, m.Version, name,
				strings.Repeat("=", 80))
			b.Write(bytes.TrimSpace(text))
			b.WriteByte('\n')
		}
	}
	return b.Bytes(), nil
}

// terms returns the names of the licence files in a module's root folder.
func terms(module fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(module, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && !strings.EqualFold(path, "third_party_licenses"):
			return fs.SkipDir
		case !d.IsDir() && legal.MatchString(path):
			found = append(found, path)
		}
		return nil
	})
	if err == nil && len(found) == 0 {
		err = errors.New("no file with its terms is found, so it cannot be handed on")
	}
	return found, err
}

// moduleDirs maps the path of each Go module to its source folder. The key "std" is the standard library.
func moduleDirs(root string) (map[string]string, error) {
	goroot, err := output(goCommand(root, "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	dirs := map[string]string{"std": strings.TrimSpace(string(goroot))}
	list, err := output(goCommand(root, "list", "-m", "-json", "all"))
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var m struct{ Path, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, err
		}
		dirs[m.Path] = m.Dir
	}
}
