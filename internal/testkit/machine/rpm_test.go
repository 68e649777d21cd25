//go:build linux && machine

package machine

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// rpms builds the rpm packages of both programs once. The subfolder rpm1 contains a release, and rpm2 contains the next
// release. Only agentd in rpm2 is compressed as in a release. The other packages are compressed less, to save CPU time.
var rpms = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("bash", "-ec", `
cd ../../..
git clone --quiet --shared . "$1/rpm"
git diff --binary HEAD | (cd "$1/rpm" && git apply --allow-empty)
for n in 1 2; do
	echo "# a line of release $n" | tee -a "$1/rpm/packaging/agentd.yaml" >> "$1/rpm/packaging/coordinator.yaml"
	git -C "$1/rpm" -c user.name=test -c user.email=test@localhost commit --quiet --all --message "Release $n"
	git -C "$1/rpm" tag v0.98.$n
	go -C tools/package run . -root "$1/rpm" -out "$1/rpm$n" -program agentd,coordinator -arch "$2" -kind rpm
done
go -C tools/package run . -root "$1/rpm" -out "$1/agentd-rpm" -program agentd -arch "$2" -kind rpm
mv "$1"/agentd-rpm/*.rpm "$1/rpm2"`, "bash", string(programs), runtime.GOARCH).CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return string(programs), nil
})

// TestRPM installs, starts, upgrades and removes each program by its rpm package. Because the machine runs Debian, rpm
// is called with an option that disables the check of dependencies.
func TestRPM(t *testing.T) {
	t.Parallel()
	for program, port := range services {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			skipWithoutPrograms(t)
			drop, err := rpms()
			if err != nil {
				t.Fatalf("making packages: %v\n%s", err, drop)
			}
			m := &site{Boot(t, drop)}
			p := byRPM{life{m, program, port, "/usr/lib/systemd/system/" + program + ".service",
				"/etc/" + program + "/" + program + ".yaml"}}
			p.install(t)
			p.furnish()
			p.dropIn(program, "[Service]\nRestartSec=100ms\n")
			p.Must("systemctl", "enable", "--now", program)
			p.start(t)
			p.wantFailure(1, "installed by a package", program, "service", "install")
			p.upgrade(t)
			p.erase(t)
		})
	}
}

// byRPM is a program that was installed by rpm.
type byRPM struct{ life }

// rpm runs the command rpm with the package of the given release as last argument. If release is empty, it adds no
// package.
func (p byRPM) rpm(release string, args ...string) string {
	p.t.Helper()
	if release != "" {
		args = append(args, p.Shell("ls "+filepath.Join(DropDir, release, p.program+"*.rpm")))
	}
	return p.Must(append([]string{"rpm", "--force-debian", "--nodeps"}, args...)...)
}

func (p byRPM) install(t *testing.T) {
	if said := p.rpm("rpm1", "--install"); !strings.Contains(said, "not started: fill in "+p.config) {
		t.Errorf("the installation does not say what comes next:\n%s", said)
	}
	if got := p.property(p.program, "ActiveState"); got != "inactive" {
		t.Errorf("the service is %s before its configuration is filled in", got)
	}
	if got, want := p.Must("stat", "--format=%a %U %G", p.config), "640 root "+p.program; got != want {
		t.Errorf("the configuration is %s, want %s", got, want)
	}
	if got, want := p.Must(p.program, "--version"), "0.98.1"; !strings.Contains(got, want) {
		t.Errorf("%s is version %s, want %s", p.program, got, want)
	}
	p.wantFailure(1, "", "systemctl", "start", p.program)
	if status := p.property(p.program, "ExecMainStatus"); status != "78" {
		t.Errorf("exit status %s of an empty configuration, want 78", status)
	}
}

// upgrade installs the next release while the service runs. Then it installs the first release again while
// RESTART_ON_UPGRADE is false.
func (p byRPM) upgrade(t *testing.T) {
	edited, first := p.Must("cat", p.config), p.property(p.program, "MainPID")
	p.rpm("rpm2", "--upgrade")
	if got := p.Must("cat", p.config); got != edited {
		t.Errorf("the upgrade changed the configuration to\n%s", got)
	}
	if got := p.Must("tail", "-n1", p.config+".rpmnew"); got != "# a line of release 2" {
		t.Errorf("the package's own configuration ends with %q", got)
	}
	p.Await("the new version runs", func() bool { return p.property(p.program, "ActiveState") == "active" })
	second := p.property(p.program, "MainPID")
	if second == first {
		t.Error("the old process runs on after an upgrade")
	}
	if got := p.Must("systemctl", "is-enabled", p.program); got != "enabled" {
		t.Errorf("after the upgrade the service is %s", got)
	}
	p.Must("sed", "-i", "s/^RESTART_ON_UPGRADE=true$/RESTART_ON_UPGRADE=false/", "/etc/default/"+p.program)
	p.rpm("rpm1", "--upgrade", "--oldpackage")
	if now := p.property(p.program, "MainPID"); now != second {
		t.Error("the process was restarted, against RESTART_ON_UPGRADE=false")
	}
}

func (p byRPM) erase(t *testing.T) {
	process := "/proc/" + p.property(p.program, "MainPID") + "/comm"
	edited := p.Must("cat", p.config)
	p.rpm("", "--erase", p.program)
	if p.Exists(process) {
		t.Error("the process outlives its package")
	}
	for _, gone := range []string{p.unit, "/usr/bin/" + p.program, "/etc/systemd/system/multi-user.target.wants/" +
		p.program + ".service"} {
		if p.Exists(gone) {
			t.Errorf("%s outlives the package", gone)
		}
	}
	if got := p.Must("cat", p.config+".rpmsave"); got != edited {
		t.Errorf("the edited configuration became\n%s", got)
	}
	if !p.Exists("/var/lib/" + p.program) {
		t.Error("the state went with the package")
	}
}
