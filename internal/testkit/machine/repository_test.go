//go:build linux && machine

package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// repository is an apt repository, with its signing key, in a folder that is visible to the machines.
type repository struct {
	t    *testing.T
	dir  string // folder of the repository on the host
	home string // home folder of gpg, which contains the signing key
}

const signer = "releases@example.org"

// newRepository creates an empty repository and a temporary signing key.
func newRepository(t *testing.T, drop string) *repository {
	t.Helper()
	dir, err := os.MkdirTemp(drop, "apt-")
	if err != nil {
		t.Fatal(err)
	}
	r := &repository{t: t, dir: dir, home: t.TempDir()} // TempDir creates the folder with mode 0700.
	r.shell(`gpg --batch --quiet --passphrase '' --quick-generate-key "$1" ed25519 sign never`, signer)
	t.Cleanup(func() {
		_ = exec.Command("gpgconf", "--homedir", r.home, "--kill", "gpg-agent").Run()
		_ = os.RemoveAll(dir)
	})
	return r
}

// shell runs a shell script on the host. The script can use the signing key.
func (r *repository) shell(script string, args ...string) {
	r.t.Helper()
	cmd := exec.Command("bash", append([]string{"-ec", script, "bash"}, args...)...)
	cmd.Env = append(os.Environ(), "GNUPGHOME="+r.home)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

// publish releases packages and software bills of materials with tools/release.sh.
func (r *repository) publish(files ...string) {
	r.t.Helper()
	dist := r.t.TempDir()
	for _, deb := range files {
		name := filepath.Base(deb)
		if program, ok := strings.CutSuffix(name, "_new.deb"); ok {
			name = program + "_" + release2 + "_" + runtime.GOARCH + ".deb"
		}
		r.shell(`cp "$1" "$2"`, deb, filepath.Join(dist, name))
	}
	r.shell(`cd "$1" && sha256sum -- * >SHA256SUMS && gpg --batch --quiet --armor --detach-sign SHA256SUMS`, dist)
	r.shell(`../../../tools/release.sh publish "$1" "$2" "$3" stable`, signer, dist, r.dir)
	r.shell(`chmod a+rx "$1"`, r.dir)
}

// TestRepository installs both programs from an apt repository, upgrades them and downgrades them. State and
// configuration must be kept. apt must refuse content without a valid signature.
func TestRepository(t *testing.T) {
	t.Parallel()
	skipWithoutPrograms(t, "apt-ftparchive", "gpg")
	drop, err := debs()
	if err != nil {
		t.Fatalf("making packages: %v\n%s", err, drop)
	}
	filesOf := func(pattern string) []string {
		found, err := filepath.Glob(filepath.Join(drop, pattern))
		if err != nil || len(found) != 2 {
			t.Fatalf("%s: %v, %v; want two files", pattern, found, err)
		}
		return found
	}
	m := &aptSite{site: &site{Boot(t, drop)}}
	r := newRepository(t, drop)
	r.publish(append(filesOf("old/*.deb"), filesOf("old/*.cdx.json")...)...)
	m.sources(r)
	m.install(t)
	m.bills(t)
	before := m.lead(t)

	r.publish(filesOf("new/*.deb")...)
	m.see(r)
	m.tampered(t, r)
	m.upgrade(t, before)
	m.goBack(t, before)
}

// aptSite is a site on which apt uses only the repository in /srv/apt.
type aptSite struct {
	*site
	first string // version that was installed first
}

// keep is an apt-get command that never prompts and keeps edited configuration files.
const keep = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dpkg::Options::=--force-confdef " +
	"-o Dpkg::Options::=--force-confold "

// see copies the present content of the repository to /srv/apt on the machine.
func (m *aptSite) see(r *repository) {
	m.t.Helper()
	m.Shell("rm -rf /srv/apt /var/lib/apt/lists/*; cp -r " + DropDir + "/" + filepath.Base(r.dir) + " /srv/apt")
}

// sources configures apt as described in docs/howto/install.md.
func (m *aptSite) sources(r *repository) {
	m.t.Helper()
	m.see(r)
	m.Shell("rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*; install -m 644 -D /srv/apt/fedmesh.gpg " +
		"/etc/apt/keyrings/fedmesh.gpg")
	m.Write("/etc/apt/sources.list.d/fedmesh.sources", 0o644, "Types: deb\nURIs: file:/srv/apt\nSuites: stable\n"+
		"Components: main\nSigned-By: /etc/apt/keyrings/fedmesh.gpg\n")
}

func (m *aptSite) version(program string) string {
	m.t.Helper()
	return m.Must("dpkg-query", "--show", "--showformat=${Version}", program)
}

func (m *aptSite) install(t *testing.T) {
	m.Shell("apt-get update && " + keep + "install agentd coordinator")
	m.first = m.version("agentd")
	for program := range services {
		if got := m.Must("systemctl", "is-enabled", program); got != "enabled" {
			t.Errorf("%s is %s", program, got)
		}
	}
}

// bills checks that the signed software bills of materials match the installed programs, and that a changed bill is
// rejected.
func (m *aptSite) bills(t *testing.T) {
	const verify = "gpgv --quiet --keyring /etc/apt/keyrings/fedmesh.gpg "
	for program := range services {
		bill := m.Must("sh", "-c", "ls /srv/apt/pool/stable/"+program+"-*.cdx.json")
		m.Shell(verify + bill + ".asc " + bill)
		m.Shell("grep -q $(sha256sum /usr/bin/" + program + " | cut -c 1-64) " + bill)
		m.Shell("cp " + bill + " /tmp/bill && sed -i '0,/sum/s//gum/' /tmp/bill && ! cmp -s " + bill + " /tmp/bill")
		if code, said := m.Run("sh", "-c", verify+bill+".asc /tmp/bill"); code == 0 {
			t.Errorf("a bill of %s that was changed is taken: %s", program, said)
		}
	}
}

// lead starts both programs, waits for the end of the run, and returns the list of models.
func (m *aptSite) lead(t *testing.T) (models string) {
	m.furnish()
	m.Must("systemctl", "start", "coordinator", "agentd")
	m.Await("the run is finished", func() bool { return strings.Contains(m.journal("coordinator"), "run finished") })
	models = m.models()
	if len(strings.Split(models, "\n")) != 5 {
		t.Fatalf("models:\n%s", models)
	}
	return models
}

func (m *aptSite) models() string {
	m.t.Helper()
	return m.Must("coordinator", "model", "list", "--state-dir", "/var/lib/coordinator")
}

// running waits until both programs run in the given version. It checks that their state was kept: the agent's number
// of starts, and the models.
func (m *aptSite) running(t *testing.T, version string, start int, models string) {
	t.Helper()
	for program := range services {
		if got := m.version(program); got != version {
			t.Errorf("%s is of version %s, want %s", program, got, version)
		}
		m.Await(program+" runs", func() bool { return m.property(program, "ActiveState") == "active" })
	}
	m.Await("the agent has started again", func() bool {
		return strings.Contains(m.journal("agentd"), fmt.Sprintf("start=%d", start))
	})
	if got := m.models(); got != models {
		t.Errorf("the models are\n%s\nwant\n%s", got, models)
	}
}

func (m *aptSite) upgrade(t *testing.T, models string) {
	edited := m.Must("cat", "/etc/agentd/agentd.yaml")
	m.Shell("apt-get update && " + keep + "upgrade")
	m.running(t, release2, 2, models)
	if got := m.Must("cat", "/etc/agentd/agentd.yaml"); got != edited {
		t.Errorf("the upgrade changed the configuration to\n%s", got)
	}
}

func (m *aptSite) goBack(t *testing.T, models string) {
	m.Shell(keep + "install --allow-downgrades agentd=" + m.first + " coordinator=" + m.first)
	m.running(t, m.first, 3, models)
}

// tampered checks that apt refuses repositories that were changed after signing.
func (m *aptSite) tampered(t *testing.T, r *repository) {
	for name, change := range map[string]string{
		"a list of packages": "for f in main/binary-*/Packages; do sed -i 's/^Version: 99/Version: 98/' $f; " +
			"gzip -9nkf $f; done",
		"an index":     "sed -i 's/^Origin: fedmesh/Origin: fedmush/' InRelease Release",
		"no signature": "rm InRelease Release.gpg",
	} {
		m.see(r)
		m.Shell("cd /srv/apt/dists/stable; " + change)
		if code, said := m.Run("apt-get", "update", "--error-on=any"); code == 0 {
			t.Errorf("%s: apt-get update takes it:\n%s", name, said)
		}
	}
	other := newRepository(t, filepath.Dir(r.dir))
	other.shell(`cp -r "$1"/. "$2" && cd "$2/dists/stable" && gpg --batch --quiet --yes --clearsign --output InRelease `+
		`Release && gpg --batch --quiet --yes --armor --detach-sign --output Release.gpg Release && chmod -R a+rX "$2"`,
		r.dir, other.dir)
	m.see(other)
	if code, said := m.Run("apt-get", "update", "--error-on=any"); code == 0 || !strings.Contains(said, "NO_PUBKEY") {
		t.Errorf("another key: apt-get update exits with %d:\n%s", code, said)
	}

	for _, change := range []string{"printf x >> $deb", "printf x | dd of=$deb bs=1 seek=5000 conv=notrunc"} {
		m.see(r)
		m.Shell("apt-get update; deb=$(ls /srv/apt/pool/stable/agentd_" + release2 + "_*.deb); " + change)
		if code, said := m.Run("sh", "-c", keep+"install agentd="+release2); code == 0 ||
			!strings.Contains(said, "Hash Sum mismatch") {
			t.Errorf("%s: apt-get install exits with %d:\n%s", change, code, said)
		}
	}
	if got := m.version("agentd"); got != m.first {
		t.Errorf("version %s is installed", got)
	}
	m.see(r)
}
