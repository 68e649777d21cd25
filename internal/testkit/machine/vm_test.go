//go:build linux && vm

package machine

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/acltest"
)

// processor describes a CPU architecture that qemu emulates.
type processor struct {
	name string // name of the architecture, which is the same in Debian and in Go
	user string // qemu-user program that is needed to build the file system; "" for the architecture of the host
	qemu []string
	tty  string
}

var processors = []processor{
	{name: "amd64", qemu: []string{"qemu-system-x86_64", "-cpu", "max", "-M", "q35"}, tty: "ttyS0"},
	{name: "arm64", qemu: []string{"qemu-system-aarch64", "-cpu", "cortex-a72", "-M", "virt"}, tty: "ttyAMA0",
		user: "qemu-aarch64"},
}

// TestVM checks memory limits on a real kernel. An agent must be able to train a model of 4 MB over TLS with a memory
// limit of 40 MB.
func TestVM(t *testing.T) {
	for _, p := range processors {
		t.Run(p.name, func(t *testing.T) {
			skipWithoutPrograms(t, p.qemu[0], "cpio", "go")
			console := p.boot(t, vmFiles(t, p.name))
			t.Logf("%s", told(console))
			if !strings.Contains(console, "TEST done") {
				t.Fatalf("the test did not come to its end:\n%s", console)
			}
			value := func(name string) int {
				found := regexp.MustCompile(`TEST ` + name + `=(\d+)`).FindStringSubmatch(console)
				if found == nil {
					t.Fatalf("no %s in\n%s", name, told(console))
				}
				n, err := strconv.Atoi(found[1])
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			if n := value("model"); n < 4_000_000 {
				t.Errorf("the model has %d bytes, want 4 MB", n)
			}
			if n := value("limit"); n != 40<<20 {
				t.Errorf("the agent may have %d bytes, want 40 MB", n)
			}
			if n := value("restarts"); n != 0 {
				t.Errorf("the agent was restarted %d times", n)
			}
			if n := value("killed"); n == 0 {
				t.Error("a limit that is far too small kills nobody: what did the other one mean?")
			}
		})
	}
}

// told returns the lines that the test inside the machine has written to the console.
func told(console string) string {
	return strings.Join(regexp.MustCompile(`TEST .*`).FindAllString(console, -1), "\n")
}

// boot boots a machine whose file system is in memory and contains additional files. It returns the console output
// after the machine has powered off.
func (p processor) boot(t *testing.T, files string) string {
	t.Helper()
	root := p.rootfs(t)
	initrd := filepath.Join(t.TempDir(), "initrd")
	f, err := os.Create(initrd)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{root, files} {
		pack := exec.Command("sh", "-c", "find . | cpio --create --format=newc --quiet --owner=+0:+0")
		if dir == root {
			pack = exec.Command("sh", "-c",
				"find . -path ./boot -prune -o -print | cpio --create --format=newc --quiet")
		}
		pack.Dir, pack.Stdout, pack.Stderr = dir, f, os.Stderr
		if err := pack.Run(); err != nil {
			t.Fatalf("cpio: %v", err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	kernels, err := filepath.Glob(filepath.Join(root, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		t.Fatalf("kernels %v, %v", kernels, err)
	}
	bounded, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	qemu := exec.CommandContext(bounded, p.qemu[0],
		append(p.qemu[1:], "-accel", "tcg,thread=multi", "-smp", "2", "-m", "2048",
			"-nodefaults", "-nographic", "-serial", "stdio", "-no-reboot", "-kernel", kernels[0], "-initrd", initrd,
			"-append", "console="+p.tty+" rdinit=/sbin/init systemd.show_status=false loglevel=3 mitigations=off")...)
	var console bytes.Buffer
	qemu.Stdout, qemu.Stderr = &console, &console
	if testing.Verbose() { // a run takes minutes, so show the progress
		both := io.MultiWriter(&console, os.Stderr)
		qemu.Stdout, qemu.Stderr = both, both
	}
	if err := qemu.Run(); err != nil {
		t.Errorf("qemu: %v", err)
	}
	return console.String()
}

// rootfs returns the folder of a Debian root file system for the processor, with a kernel in /boot.
func (p processor) rootfs(t *testing.T) string {
	t.Helper()
	if p.user != "" {
		if _, err := os.Stat("/proc/sys/fs/binfmt_misc/" + p.user); err != nil {
			mount := exec.Command("sh", "-c",
				"mountpoint -q /proc/sys/fs/binfmt_misc || mount -t binfmt_misc binfmt_misc "+
					"/proc/sys/fs/binfmt_misc; update-binfmts --enable "+p.user)
			if out, err := mount.CombinedOutput(); err != nil {
				t.Fatalf("%v runs nothing here: %v\n%s", p.user, err, out)
			}
		}
	}
	kernel := "linux-image-cloud-" + p.name
	// The kernel package is only unpacked and not installed, because no initrd and no kernel modules are needed.
	return debian(t, release+"-vm-"+p.name, "--arch="+p.name,
		`--customize-hook=chroot "$1" sh -ec 'cd /tmp; apt-get download $(apt-cache depends `+kernel+` | sed -n "s/.*Depends: \(linux-image\)/\1/p")`+
			`; dpkg-deb --fsys-tarfile linux-image-*.deb | tar --extract --directory=/ --wildcards "./boot/vmlinuz-*"; rm linux-image-*.deb'`)
}

// vmFiles returns a folder with the additional files of the machine: the programs, a broker with TLS, a federation with
// a model of 4 MB, and a test script that starts at boot.
func vmFiles(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, data []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := testkit.BuildInto(filepath.Join("..", "..", ".."), filepath.Join(dir, "usr/local/bin"),
		"GOARCH="+arch); err != nil {
		t.Fatal(err)
	}
	authority := acltest.NewAuthority(t)
	broker := authority.Issue(t, "broker")
	key, err := x509.MarshalPKCS8PrivateKey(broker.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write("etc/mosquitto/ca.crt", 0o644,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate.Raw}))
	write("etc/mosquitto/broker.crt", 0o644,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: broker.Certificate[0]}))
	write("etc/mosquitto/broker.key", 0o644, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	write("etc/mosquitto/conf.d/tls.conf", 0o644,
		[]byte("listener 8883 127.0.0.1\nallow_anonymous true\ncafile /etc/mosquitto/ca.crt\n"+
			"certfile /etc/mosquitto/broker.crt\nkeyfile /etc/mosquitto/broker.key\n"))

	secure := func(config string) string {
		return strings.Replace(config, `{url: "tcp://127.0.0.1:1883"}`,
			`{url: "tls://127.0.0.1:8883", ca_file: /etc/mosquitto/ca.crt}`, 1)
	}
	features := make([]string, 1000)
	for i := range features {
		features[i] = fmt.Sprint("x", i)
	}
	large := strings.Replace(coordinatorConfig, "features: [x]",
		"features: ["+strings.Join(features, ", ")+"]\n  model: {kind: mlp, hidden: [1000]}", 1)
	large = strings.NewReplacer("deadline: 30s", "deadline: 5m", "rounds: 3", "rounds: 2").Replace(large)
	write("etc/coordinator/coordinator.yaml", 0o644, []byte(secure(large)))
	write("etc/agentd/agentd.yaml.in", 0o644, []byte(secure(agentConfig)))
	data := strings.Join(features, ",") + ",y\n"
	for i := range 24 {
		for j := range features {
			data += fmt.Sprintf("%d,", (i*j)%3)
		}
		data += fmt.Sprintf("%d\n", i%5)
	}
	write("srv/data.csv", 0o644, []byte(data))
	atBoot(t, dir, "vm.sh")
	return dir
}

// atBoot adds files to the folder dir that make a machine run a script from testdata at boot.
func atBoot(t *testing.T, dir, script string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", script))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test.sh"), text, 0o755)
	}
	units := filepath.Join(dir, "etc/systemd/system")
	wants := filepath.Join(units, "multi-user.target.wants")
	if err == nil {
		err = os.MkdirAll(wants, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(units, "test.service"), []byte("[Unit]\nDescription=The test\n"+
			"After=mosquitto.service\n[Service]\nType=oneshot\nExecStart=/bin/bash /test.sh\n"), 0o644)
	}
	if err == nil {
		err = os.Symlink("../test.service", filepath.Join(wants, "test.service"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestCage checks the sandbox of external trainers. It runs the agent as root, and as a service with a delegated
// control group.
func TestCage(t *testing.T) {
	p := processors[0]
	skipWithoutPrograms(t, p.qemu[0], "cpio", "go")
	dir := t.TempDir()
	build := exec.Command("go", "test", "-c", "-tags", "vm", "-o", filepath.Join(dir, "external.test"),
		"github.com/fedmesh/fedmesh/agent/external")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+p.name)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	atBoot(t, dir, "cage.sh")
	console := p.boot(t, dir)
	for _, who := range []string{"root", "nobody", "hardened"} {
		if !strings.Contains(console, "TEST "+who+"=0") {
			t.Errorf("not as %s:\n%s", who, console)
		}
	}
}
