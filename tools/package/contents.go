package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// file describes a file that is shipped with a program, and its path in each package format.
type file struct {
	from string // path of the source file in the repository or the stage folder
	deb  string // path in the .deb package; "" excludes the file from the package
	rpm  string
	apk  string
	tar  string // path in the tarball, relative to the top folder
	oci  string // path in the container image
	mode fs.FileMode
	conf bool // true for a configuration file, whose edits by the user are kept at a package upgrade
}

// program describes a released program and its additional files, which are the same for all CPU architectures.
type program struct {
	name, root string
	service    bool   // true if the program is a service, which has a configuration, systemd units and its own user
	stage      string // staging folder for generated files
	files      []file
}

func (p program) String() string { return p.name }

// programs lists the programs that are part of a release.
var programs = []program{{name: "agentd", service: true}, {name: "coordinator", service: true}, {name: "fedlab"}}

// gather collects all files of the program except the binary, and generates some of them. gather reads the program's
// version from b.
func (p *program) gather(stage string, b *binary) error {
	p.stage = stage
	notices, err := notices(p.root, b.info)
	if err != nil {
		return err
	}
	changelog, err := os.ReadFile(filepath.Join(p.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	overrides, err := p.lintianOverrides()
	if err != nil {
		return err
	}
	name, doc := p.name, "/usr/share/doc/"+p.name+"/"
	err = errors.Join(
		p.add(file{deb: doc + "copyright", mode: 0o644}, "packaging/linux/deb/copyright"),
		p.write(file{deb: "/usr/share/lintian/overrides/" + name, mode: 0o644}, "lintian-overrides", overrides),
		p.add(file{rpm: "/usr/share/licenses/" + name + "/LICENSE", apk: "/usr/share/licenses/" + name + "/LICENSE",
			tar: "LICENSE", oci: "/usr/share/licenses/" + name + "/LICENSE", mode: 0o644},
			"LICENSE"),
		p.write(everywhere(file{oci: doc + "third-party-notices.gz", mode: 0o644}, doc+"third-party-notices.gz"),
			"notices.gz", compress(notices)),
		p.write(file{tar: "third-party-notices", mode: 0o644}, "notices", notices),
		p.write(everywhere(file{mode: 0o644}, doc+"changelog.gz"), "changelog.gz", compress(changelog)),
		p.write(file{tar: "CHANGELOG.md", mode: 0o644}, "changelog", changelog),
		p.write(file{deb: doc + "changelog.Debian.gz", mode: 0o644},
			"changelog.Debian.gz", compress(debianChangelog(name, b.version))),
		p.addManual(b.version),
	)
	if p.service {
		err = errors.Join(err, p.addService(b.version))
	}
	// The coordinator's package also has files for a broker on the same machine.
	if name == "coordinator" {
		for _, unit := range []string{"mosquitto.service.d/fedmesh.conf", "fedmesh-acl.path", "fedmesh-acl.service"} {
			at := "/usr/lib/systemd/system/" + unit
			err = errors.Join(err, p.add(file{deb: at, rpm: at, tar: unit, mode: 0o644}, "packaging/mosquitto/"+unit))
		}
	}
	// The demonstration in fedlab contains third-party data sets. Add the page that documents their sources.
	if name == "fedlab" {
		at := doc + "data-sources.md"
		err = errors.Join(err, p.add(everywhere(file{tar: "data-sources.md", mode: 0o644}, at),
			"lab/demo/data/SOURCE.md"))
	}
	if name == "agentd" {
		err = errors.Join(err,
			p.add(file{tar: "openwrt/agentd.init", mode: 0o755}, "packaging/openwrt/agentd.init"),
			p.add(file{tar: "openwrt/README.md", mode: 0o644}, "packaging/openwrt/README.md"))
	}
	return err
}

// addService adds the files of a service: its configuration, systemd units, user and maintainer scripts.
func (p *program) addService(v version) error {
	name := p.name
	etc, unit := "/etc/"+name+"/"+name+".yaml", "/usr/lib/systemd/system/"+name+".service"
	err := errors.Join(
		p.add(everywhere(file{tar: name + ".yaml", mode: 0o640, conf: true}, etc), "packaging/"+name+".yaml"),
		p.add(file{deb: "/etc/default/" + name, rpm: "/etc/default/" + name, apk: "/etc/conf.d/" + name, mode: 0o644,
			conf: true},
			"packaging/linux/default"),
		p.add(file{deb: unit, rpm: unit, tar: name + ".service", mode: 0o644}, "packaging/systemd/"+name+".service"),
		p.add(file{deb: "/usr/lib/sysusers.d/" + name + ".conf", rpm: "/usr/lib/sysusers.d/" + name + ".conf",
			mode: 0o644},
			"packaging/linux/sysusers.conf"),
		p.add(file{apk: "/etc/init.d/" + name, tar: name + ".openrc", mode: 0o755}, "packaging/linux/apk/openrc"),
	)
	if err != nil {
		return err
	}
	for _, script := range []string{"deb/postinst", "deb/prerm", "deb/postrm", "rpm/post", "rpm/preun", "rpm/postun",
		"apk/pre-install", "apk/post-install", "apk/post-upgrade", "apk/pre-deinstall"} {
		text, err := p.text("packaging/linux/" + script)
		if err != nil {
			return err
		}
		at := p.script(script)
		if err := put(at, text); err != nil {
			return err
		}
		// Set a fixed modification time, because nfpm stores it in .apk packages.
		if err := os.Chtimes(at, v.time, v.time); err != nil {
			return err
		}
	}
	return nil
}

// everywhere returns file f with the same path in the .deb, .rpm and .apk packages.
func everywhere(f file, at string) file {
	f.deb, f.rpm, f.apk = at, at, at
	return f
}

// lintianOverrides returns the content of the package's lintian overrides file. A service has additional overrides.
func (p *program) lintianOverrides() ([]byte, error) {
	all, err := p.text("packaging/linux/deb/lintian-overrides")
	if err != nil || !p.service {
		return all, err
	}
	more, err := p.text("packaging/linux/deb/lintian-overrides-service")
	return append(all, more...), err
}

// text returns the content of a repository file with the placeholders @NAME@ and @UPPER@ replaced by the program's
// name.
func (p *program) text(path string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(p.root, path))
	fill := strings.NewReplacer("@NAME@", p.name, "@UPPER@", strings.ToUpper(p.name))
	return []byte(fill.Replace(string(text))), err
}

// add adds a file of the repository to the program's files.
func (p *program) add(f file, path string) error {
	text, err := p.text(path)
	if err != nil {
		return err
	}
	return p.write(f, strings.ReplaceAll(path, "/", "_"), text)
}

// write writes a file with the given content to the stage folder and adds it to the program's files.
func (p *program) write(f file, name string, data []byte) error {
	f.from = filepath.Join(p.stage, name)
	p.files = append(p.files, f)
	return put(f.from, data)
}

// addManual generates the manual pages and shell completions and adds them to the program's files.
func (p *program) addManual(v version) error {
	dir, err := filepath.Abs(filepath.Join(p.stage, "manual"))
	if err != nil {
		return err
	}
	cmd := goCommand(p.root, "test", "./cmd/"+p.name, "-run", "^TestManual$", "-args", "-manual", dir,
		"-manual.date", v.time.Format("2006-01-02"))
	if _, err := output(cmd); err != nil {
		return err
	}
	pages, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("no manual pages were made (%w)", err)
	}
	sort.Strings(pages)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		name := filepath.Base(page)
		at := "/usr/share/man/man1/" + name + ".gz"
		p.files = append(p.files, file{from: page, tar: "man/" + name, mode: 0o644})
		if err := p.write(file{deb: at, rpm: at, apk: at, mode: 0o644}, name+".gz", compress(text)); err != nil {
			return err
		}
	}
	for shell, at := range map[string]string{
		"bash": "/usr/share/bash-completion/completions/" + p.name,
		"zsh":  "/usr/share/zsh/site-functions/_" + p.name,
		"fish": "/usr/share/fish/vendor_completions.d/" + p.name + ".fish",
	} {
		f := file{from: filepath.Join(dir, "completions", shell), deb: at, rpm: at, apk: at, tar: "completions/" +
			shell, mode: 0o644}
		if shell == "zsh" {
			f.deb = "/usr/share/zsh/vendor-completions/_" + p.name
		}
		p.files = append(p.files, f)
	}
	return nil
}

// debianChangelog returns a Debian changelog with one entry, which refers to CHANGELOG.md.
func debianChangelog(name string, v version) []byte {
	return fmt.Appendf(nil, "%s (%s-1) stable; urgency=medium\n\n  * What is new is in "+
		"/usr/share/doc/%s/changelog.gz.\n\n -- %s  %s\n",
		name, v.debian(), name, maintainer, v.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// compress compresses data in the same way as gzip -9n, so that the output does not contain a timestamp.
func compress(data []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err) // NewWriterLevel fails only for an invalid compression level.
	}
	_, _ = w.Write(data) // Writing to a buffer in memory cannot fail.
	_ = w.Close()
	return b.Bytes()
}

// put writes a file and creates missing parent folders.
func put(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
