package main

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/apk"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

const (
	maintainer = "The fedmesh authors <fedmesh@users.noreply.github.com>"
	vendor     = "fedmesh"
	homepage   = "https://github.com/fedmesh/fedmesh"
	license    = "Apache-2.0"
)

// about maps each program's name to its short and long description for package metadata.
var about = map[string][2]string{
	"agentd": {"agent of a federated learning system, for edge devices",
		`agentd trains a model on the data of this device, which never leave it, and
sends only what it learned. It meets its coordinator at an MQTT broker, takes
as many local steps as the device can afford, and goes on after lost links,
power cuts and restarts.`},
	"coordinator": {"parameter server of a federated learning system",
		`coordinator leads a federation of devices that train one model on data they
keep: it announces rounds over an MQTT broker, collects and averages what the
agents learned, and publishes the model. An update that it accepted survives
crashes and power cuts.`},
	"fedlab": {"laboratory of a federated learning system",
		`fedlab runs whole federations on one machine: a demonstration on real data over
a broker of its own, fleets of agents that can be slow, late or gone, and a
testbed with Mosquitto and Prometheus. It simulates large federations with the
code of agentd and coordinator, and reproduces published experiments.`},
}

// writeDeb writes a .deb package for Debian and derived systems.
func writeDeb(p *program, b *binary, out string) error {
	info := p.info(b, b.version.debian(), func(f file) string { return f.deb })
	info.Section, info.Priority = "net", "optional"
	info.License = "" // Debian packages declare the licence in the copyright file, not in a metadata field.
	info.Deb.Compression = "xz"
	if p.service {
		info.Depends = []string{"init-system-helpers (>= 1.54~)",
			"systemd | systemd-standalone-sysusers | systemd-sysusers"}
		info.Scripts = nfpm.Scripts{PostInstall: p.script("deb/postinst"), PreRemove: p.script("deb/prerm"),
			PostRemove: p.script("deb/postrm")}
	}
	return pack(deb.Default, info, filepath.Join(out, p.name+"_"+info.Version+"-1_"+b.debian+".deb"))
}

// writeRPM writes an .rpm package for Fedora, openSUSE and similar systems.
func writeRPM(p *program, b *binary, out string) error {
	info := p.info(b, b.version.debian(), func(f file) string { return f.rpm })
	info.RPM = nfpm.RPM{BuildHost: "localhost", Compression: "xz", Summary: about[p.name][0]}
	if p.service {
		info.Depends = []string{"systemd"}
		info.Scripts = nfpm.Scripts{PostInstall: p.script("rpm/post"), PreRemove: p.script("rpm/preun"),
			PostRemove: p.script("rpm/postun")}
	}
	return pack(rpm.DefaultRPM, info, filepath.Join(out, rpm.DefaultRPM.ConventionalFileName(info)))
}

// writeAPK writes an .apk package for Alpine Linux. The package is not signed, so users must install it with apk add
// --allow-untrusted.
func writeAPK(p *program, b *binary, out string) error {
	v, err := b.version.alpine()
	if err != nil {
		return err
	}
	info := p.info(b, v, func(f file) string { return f.apk })
	if p.service {
		info.Scripts = nfpm.Scripts{PreInstall: p.script("apk/pre-install"), PostInstall: p.script("apk/post-install"),
			PreRemove: p.script("apk/pre-deinstall")}
		info.APK.Scripts.PostUpgrade = p.script("apk/post-upgrade")
	}
	return pack(apk.Default, info, filepath.Join(out, apk.Default.ConventionalFileName(info)))
}

// script returns the path of a generated maintainer script, such as deb/postinst.
func (p *program) script(name string) string { return filepath.Join(p.stage, "scripts", name) }

// info returns the package metadata and the list of files for nfpm. at returns the installed path of a file in the
// package format.
func (p *program) info(b *binary, version string, at func(file) string) *nfpm.Info {
	contents := files.Contents{entry(b.path, "/usr/bin/"+p.name, 0o755)}
	for _, f := range p.files {
		if at(f) == "" {
			continue
		}
		c := entry(f.from, at(f), f.mode)
		if f.conf {
			c.Type = files.TypeConfigNoReplace
		}
		contents = append(contents, c)
	}
	slices.SortFunc(contents, func(a, b *files.Content) int { return cmp.Compare(a.Destination, b.Destination) })
	return nfpm.WithDefaults(&nfpm.Info{
		Name: p.name, Arch: b.nfpm, Version: version, VersionSchema: "none", Release: "1", Maintainer: maintainer,
		Vendor: vendor, Homepage: homepage, License: license,
		Description: about[p.name][0] + "\n" + about[p.name][1], DisableGlobbing: true, MTime: b.version.time,
		Overridables: nfpm.Overridables{Contents: contents},
	})
}

func entry(from, to string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to,
		FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
}

func pack(kind interface {
	Package(*nfpm.Info, io.Writer) error
}, info *nfpm.Info, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close() // needed only for early returns; the call of Close below reports errors
	if err := kind.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}
