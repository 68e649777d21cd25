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

// file is one of the files that come with a program, with its place in each kind
// of package.
type file struct {
	from string // the file that has its bytes
	deb  string // where it goes; "" = nowhere
	rpm  string
	apk  string
	tar  string // below the tarball's folder
	mode fs.FileMode
	conf bool // the administrator's: an edited one survives upgrades
}

// program is a program and the files that come with it on every processor.
type program struct {
	name, root string
	service    bool   // it is one, with a configuration, units and a user of its own
	stage      string // where what is made goes
	files      []file
}

func (p program) String() string { return p.name }

// programs are all that we release.
var programs = []program{{name: "agentd", service: true}, {name: "coordinator", service: true}, {name: "fedlab"}}

// gather makes and finds all files but the binary, which knows the version.
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
			tar: "LICENSE", mode: 0o644},
			"LICENSE"),
		p.write(everywhere(file{mode: 0o644}, doc+"third-party-notices.gz"), "notices.gz", compress(notices)),
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
	if name == "coordinator" { // for a broker beside it
		for _, unit := range []string{"mosquitto.service.d/fedmesh.conf", "fedmesh-acl.path", "fedmesh-acl.service"} {
			at := "/usr/lib/systemd/system/" + unit
			err = errors.Join(err, p.add(file{deb: at, rpm: at, tar: unit, mode: 0o644}, "packaging/mosquitto/"+unit))
		}
	}
	if name == "fedlab" { // whose demonstration holds data of others
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

// addService adds what makes a service of the program: its configuration, units, user and maintainer scripts.
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
		if err := os.Chtimes(at, v.time, v.time); err != nil { // nfpm writes it into an apk
			return err
		}
	}
	return nil
}

// everywhere puts a file at one place in all packages.
func everywhere(f file, at string) file {
	f.deb, f.rpm, f.apk = at, at, at
	return f
}

// lintianOverrides are those of every program, and those of a service.
func (p *program) lintianOverrides() ([]byte, error) {
	all, err := p.text("packaging/linux/deb/lintian-overrides")
	if err != nil || !p.service {
		return all, err
	}
	more, err := p.text("packaging/linux/deb/lintian-overrides-service")
	return append(all, more...), err
}

// text reads a file of the repository and fills in the program's name.
func (p *program) text(path string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(p.root, path))
	fill := strings.NewReplacer("@NAME@", p.name, "@UPPER@", strings.ToUpper(p.name))
	return []byte(fill.Replace(string(text))), err
}

// add adds a file of the repository.
func (p *program) add(f file, path string) error {
	text, err := p.text(path)
	if err != nil {
		return err
	}
	return p.write(f, strings.ReplaceAll(path, "/", "_"), text)
}

// write adds a file with these bytes.
func (p *program) write(f file, name string, data []byte) error {
	f.from = filepath.Join(p.stage, name)
	p.files = append(p.files, f)
	return put(f.from, data)
}

// addManual makes manual pages and completions, and adds them.
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

// debianChangelog points to ours.
func debianChangelog(name string, v version) []byte {
	return fmt.Appendf(nil, "%s (%s-1) stable; urgency=medium\n\n  * What is new is in "+
		"/usr/share/doc/%s/changelog.gz.\n\n -- %s  %s\n",
		name, v.debian(), name, maintainer, v.time.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
}

// compress is gzip -9n.
func compress(data []byte) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		panic(err) // not such a level
	}
	_, _ = w.Write(data) // into memory
	_ = w.Close()
	return b.Bytes()
}

// put writes a file and the folders above it.
func put(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
