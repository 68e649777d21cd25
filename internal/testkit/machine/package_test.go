//go:build linux && machine

package machine

import (
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// release2 is the version of the newer packages. Their configuration files contain an additional line.
const release2 = "99.0.0-1"

// debs builds the Debian packages of both programs once and returns their folder. The subfolder old contains the
// packages as released. The subfolder new contains packages with a higher version.
var debs = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("bash", "-ec", `
cd ../../..
git clone --quiet --shared . "$1/src" # the go command reads the version of clones only, not of work trees
git diff --binary HEAD | (cd "$1/src" && git apply --allow-empty)
go -C tools/package run . -root "$1/src" -out "$1/old" -program agentd,coordinator -arch "$2" -kind deb,sbom
mkdir "$1/new"
for name in agentd coordinator; do
	dpkg-deb --raw-extract "$1"/old/${name}_*.deb "$1/new/$name"
	sed -i 's/^Version: .*/Version: `+release2+`/' "$1/new/$name/DEBIAN/control"
	echo '# a line of the next release' >> "$1/new/$name/etc/$name/$name.yaml"
	dpkg-deb --root-owner-group -Znone --build "$1/new/$name" "$1/new/${name}_new.deb"
done`, "bash", string(programs), runtime.GOARCH).CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return string(programs), nil
})

// TestPackage installs, starts, upgrades and removes each program by its Debian package.
func TestPackage(t *testing.T) {
	t.Parallel()
	for program, port := range services {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			skipWithoutPrograms(t)
			drop, err := debs()
			if err != nil {
				t.Fatalf("making packages: %v\n%s", err, drop)
			}
			m := &site{Boot(t, drop)}
			p := packaged{life{m, program, port, "/usr/lib/systemd/system/" + program + ".service",
				"/etc/" + program + "/" + program + ".yaml"}}
			p.install(t)
			p.firstStart(t)
			p.furnish()
			p.unitOfBoth(t)
			p.dropIn(program, "[Service]\nRestartSec=100ms\n")
			p.Must("systemctl", "start", program)
			p.start(t)
			p.reload(t)
			p.crash(t)
			p.upgrade(t)
			p.remove(t)
			p.purge(t)
		})
	}
}

// packaged is a program that was installed by a Debian package.
type packaged struct{ life }

// dpkg installs a package from the drop folder with the options of Debian's unattended upgrades, which keep edited
// configuration files.
func (p packaged) dpkg(file string) string {
	p.t.Helper()
	return p.Shell("dpkg --force-confdef --force-confold --install " + DropDir + "/" + file + " 2>&1")
}

func (p packaged) install(t *testing.T) {
	said := p.dpkg("old/" + p.program + "_*.deb")
	if !strings.Contains(said, "not started: fill in "+p.config) {
		t.Errorf("the installation does not say what comes next:\n%s", said)
	}
	if got := p.Must("systemctl", "is-enabled", p.program); got != "enabled" {
		t.Errorf("the service is %s", got)
	}
	if got := p.property(p.program, "ActiveState"); got != "inactive" {
		t.Errorf("the service is %s before its configuration is filled in", got)
	}
	if got, want := p.Must("stat", "--format=%a %U %G", p.config), "640 root "+p.program; got != want {
		t.Errorf("the configuration is %s, want %s", got, want)
	}
	p.Must("systemd-analyze", "verify", p.unit)
	// The package raises the limit of Mosquitto's connections, which takes effect at Mosquitto's next start.
	if p.program == "coordinator" {
		p.Must("systemctl", "restart", "mosquitto")
		if got := p.Must("sh", "-c", "grep 'Max open files' /proc/$(systemctl show --property MainPID --value "+
			"mosquitto)/limits"); !strings.Contains(got, " 20000 ") {
			t.Errorf("Mosquitto has the limit %q, want 20000", got)
		}
	}
	// Minimal systems are configured to install no manual pages.
	p.Shell("test -s /usr/share/man/man1/" + p.program + ".1.gz || grep -q man /etc/dpkg/dpkg.cfg.d/*")
}

// unitOfBoth checks that the unit in the package equals the unit that "service install" would write, and that "service
// install" refuses to replace the unit of the package.
func (p packaged) unitOfBoth(t *testing.T) {
	if unit, printed := p.Must("cat", p.unit), p.Must(p.program, "service", "install", "--print"); unit != printed {
		t.Errorf("the package's unit is\n%s\nand not, as %s service install would write it,\n%s", unit, p.program,
			printed)
	}
	p.wantFailure(1, "installed by a package", p.program, "service", "install")
}

// firstStart checks that the program does not start with the configuration from the package, because some of its lines
// must be filled in first.
func (p packaged) firstStart(t *testing.T) {
	p.wantFailure(1, "", "systemctl", "start", p.program)
	if status, restarts := p.property(p.program, "ExecMainStatus"),
		p.property(p.program, "NRestarts"); status != "78" || restarts != "0" {
		t.Errorf("exit status %s after %s restarts, want 78 and none", status, restarts)
	}
	if log := p.journal(p.program); !strings.Contains(log, p.config+":") {
		t.Errorf("the journal does not name the configuration's line:\n%s", log)
	}
}

// upgrade installs the next release three times: while the service runs, while RESTART_ON_UPGRADE is false, and while
// the service is stopped.
func (p packaged) upgrade(t *testing.T) {
	pid := func() string { return p.property(p.program, "MainPID") }
	edited, first := p.Must("cat", p.config), pid()
	p.dpkg("new/" + p.program + "_new.deb")
	if got := p.Must("dpkg-query", "--show", "--showformat=${Version}", p.program); got != release2 {
		t.Errorf("version %s is installed, want %s", got, release2)
	}
	if got := p.Must("cat", p.config); got != edited {
		t.Errorf("the upgrade changed the configuration to\n%s", got)
	}
	if got := p.Must("tail", "-n1", p.config+".dpkg-dist"); got != "# a line of the next release" {
		t.Errorf("the package's own configuration ends with %q", got)
	}
	p.Await("the new version runs", func() bool { return p.property(p.program, "ActiveState") == "active" })
	second := pid()
	if second == first {
		t.Error("the old process runs on after an upgrade")
	}

	p.Must("sed", "-i", "s/^RESTART_ON_UPGRADE=true$/RESTART_ON_UPGRADE=false/", "/etc/default/"+p.program)
	if said := p.dpkg("old/" + p.program + "_*.deb"); !strings.Contains(said, "still runs the previous version") {
		t.Errorf("the installation does not say that the old process runs on:\n%s", said)
	}
	if now := pid(); now != second {
		t.Error("the process was restarted, against RESTART_ON_UPGRADE=false")
	}

	p.Must("systemctl", "stop", p.program)
	p.Must("sed", "-i", "s/^RESTART_ON_UPGRADE=false$/RESTART_ON_UPGRADE=true/", "/etc/default/"+p.program)
	own := "/etc/systemd/system/" + p.program + ".service"
	p.Must("cp", p.unit, own)
	if said := p.dpkg("new/" + p.program + "_new.deb"); !strings.Contains(said, own+" hides the unit") {
		t.Errorf("the installation does not say that its unit is hidden:\n%s", said)
	}
	p.Must("rm", own)
	p.Must("systemctl", "daemon-reload")
	if got := p.property(p.program, "ActiveState"); got != "inactive" {
		t.Errorf("an upgrade made the stopped service %s", got)
	}
	p.Must("systemctl", "disable", p.program)
	p.dpkg("old/" + p.program + "_*.deb")
	if _, got := p.Run("systemctl", "is-enabled", p.program); got != "disabled" {
		t.Errorf("an upgrade made the disabled service %s", got)
	}
	p.Must("systemctl", "enable", "--now", p.program)
}

func (p packaged) remove(t *testing.T) {
	process := "/proc/" + p.property(p.program, "MainPID") + "/comm"
	p.Must("dpkg", "--remove", p.program)
	if p.Exists(process) {
		t.Error("the process outlives its package")
	}
	for _, gone := range []string{p.unit, "/usr/bin/" + p.program, "/usr/lib/sysusers.d/" + p.program + ".conf"} {
		if p.Exists(gone) {
			t.Errorf("%s outlives the package", gone)
		}
	}
	for _, kept := range []string{p.config, "/etc/default/" + p.program, "/var/lib/" + p.program} {
		if !p.Exists(kept) {
			t.Errorf("%s went before purge", kept)
		}
	}
	// The service must be restored to its previous state, but must not be started.
	edited := p.Must("cat", p.config)
	p.dpkg("old/" + p.program + "_*.deb")
	if got := p.Must("cat", p.config); got != edited {
		t.Errorf("a new installation changed the configuration to\n%s", got)
	}
	p.Must("systemctl", "start", p.program)
}

func (p packaged) purge(t *testing.T) {
	p.Must("rm", "-r", "/etc/systemd/system/"+p.program+".service.d")
	p.Must("dpkg", "--purge", p.program)
	for _, gone := range []string{p.config, "/etc/default/" + p.program, "/var/lib/" + p.program} {
		if p.Exists(gone) {
			t.Errorf("%s is left after purge", gone)
		}
	}
	if left := p.leftovers() + p.Shell("find /var/lib/systemd /var/lib/dpkg/info -name '*"+p.program+"*'"); left != "" {
		t.Errorf("purge left %s", left)
	}
	if keys := p.Must("sh", "-c", "ls /etc/"+p.program+"/*.key"); keys == "" {
		t.Error("the administrator's key went with the package")
	}
	p.Must("id", p.program)
}
