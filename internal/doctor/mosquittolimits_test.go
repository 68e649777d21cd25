package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
	"github.com/fedmesh/fedmesh/packaging/mosquitto"
)

// proc creates a temporary folder that replaces /proc and contains the given files.
func proc(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if target, link := strings.CutPrefix(text, "-> "); err == nil && link {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func limits(soft int) string {
	return fmt.Sprintf("Limit                     Soft Limit           Hard Limit           Units     \n"+
		"Max processes             63432                63432                processes \n"+
		"Max open files            %-20d 524288               files     \n", soft)
}

// sockets contains lines of /proc/net/tcp: a socket that listens on port 8883, and a connection to it.
const sockets = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:22B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000   107        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:22B3 0100007F:D431 01 00000000:00000000 00:00000000 00000000   107        0 4712 1 0000000000000000 20 4 30 10 -1
`

// unasked returns an nft function that fails the test when it is called. It is for a Mosquitto that only this machine
// can reach, so that the firewall does not matter.
func unasked(t *testing.T) func(context.Context, ...string) (string, error) {
	return func(context.Context, ...string) (string, error) {
		t.Error("nft is asked for its rules")
		return "", nil
	}
}

func TestDescriptors(t *testing.T) {
	local, there := netip.MustParseAddrPort("192.0.2.1:54321"), netip.MustParseAddrPort("192.0.2.7:8883")
	same := netip.MustParseAddrPort("192.0.2.1:8883")
	for _, tt := range []struct {
		name   string
		files  map[string]string
		remote netip.AddrPort
		want   string
	}{
		{"another machine", nil, there, "skipped the broker's limit of open files was not checked because the broker " +
			"is on another machine"},
		{"no Mosquitto", map[string]string{"7/comm": "emqx\n", "7/limits": limits(9)}, same, ""},
		{"systemd's limit", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(1024),
			"7/fd/4": "-> socket:[4711]", "net/tcp": sockets}, same,
			"warn Mosquitto is limited to 1024 open files, so this number of idle connections would lock out all " +
				"devices"},
		{"our drop-in", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(20000),
			"7/fd/4": "-> socket:[4711]", "net/tcp": sockets}, same,
			"good Mosquitto is limited to 20000 open files"},
		{"of two, the one on the port", map[string]string{
			"5/comm": "mosquitto\n", "5/limits": limits(1024), "5/fd/4": "-> socket:[99]",
			"7/comm": "mosquitto\n", "7/limits": limits(20000), "7/fd/4": "-> socket:[4711]", "net/tcp6": sockets,
		}, same, "good Mosquitto is limited to 20000 open files"},
		{"it listens elsewhere", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(1024),
			"7/fd/4": "-> socket:[99]", "net/tcp": sockets}, same, ""},
		{"its files are not shown", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(1024),
			"net/tcp": sockets}, same, "warn Mosquitto is limited to 1024 open files"},
		{"nor which of two", map[string]string{"5/comm": "mosquitto\n", "5/limits": limits(20000),
			"7/comm": "mosquitto\n", "7/limits": limits(1024), "net/tcp": sockets}, same, ""},
	} {
		found := ""
		r := &findingReporter{showFinding: func(f Finding) { found = string(f.State) + " " + f.Observation }}
		localMachine{proc: proc(t, tt.files), runNft: unasked(t)}.checkMosquitto(t.Context(), r, local, tt.remote)
		if !strings.HasPrefix(found, tt.want) || tt.want == "" && found != "" {
			t.Errorf("%s: %q, want %q", tt.name, found, tt.want)
		}
	}
}

// TestFirewall checks that the doctor requires a firewall limit per source address if other machines can reach the
// port.
func TestFirewall(t *testing.T) {
	const (
		table = "table inet fedmesh {\n\tset fedmesh {\n\t\ttype inet_service\n\t\telements = { 8883, 8884 }\n\t}\n" +
			"}\n"
		none = "Error: No such file or directory\nlist set inet fedmesh fedmesh\n"
	)
	anyone := strings.Replace(sockets, "0100007F", "00000000", 1)
	failed := errors.New("exit status 1")
	for _, tt := range []struct {
		name, sockets, out string
		err                error
		want               string
	}{
		{"only this machine", sockets, none, failed, ""},
		{"only this machine, by IPv6", strings.Replace(sockets, "0100007F", "00000000000000000000000001000000", 1),
			none, failed, ""},
		{"another network's 127", strings.Replace(sockets, "0100007F", "7F01A8C0", 1), none, failed,
			"warn port 8883 is reachable from other machines"},
		{"all, by IPv6", strings.Replace(sockets, "0100007F", strings.Repeat("0", 32), 1), none, failed,
			"warn port 8883 is reachable from other machines"},
		{"no nft", anyone, "", exec.ErrNotFound, "warn port 8883 is reachable from other machines"},
		{"loaded", anyone, table, nil, "good nftables limits the number of connections per source address to port " +
			"8883"},
		{"another port", anyone, strings.Replace(table, "8883", "18883", 1), nil,
			"warn the nftables rules of fedmesh do not contain port 8883"},
		{"not root", anyone, "Operation not permitted (you must be root)\nnetlink: no cache\n", failed,
			"skipped cannot list the nftables rules: Operation not permitted (you must be root)"},
	} {
		found := ""
		m := localMachine{proc(t, map[string]string{"net/tcp": tt.sockets}),
			func(context.Context, ...string) (string, error) { return tt.out, tt.err }}
		m.checkFirewallConnectionLimit(t.Context(),
			&findingReporter{showFinding: func(f Finding) { found = string(f.State) + " " + f.Observation }},
			8883)
		if !strings.HasPrefix(found, tt.want) || tt.want == "" && found != "" {
			t.Errorf("%s: %q, want %q", tt.name, found, tt.want)
		}
	}
}

func TestMemory(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"shipped.conf": string(mosquitto.Conf),
		"none.conf":    "listener 1883\n#memory_limit 1073741824\nmemory_limit 0\n",
		"folder.conf":  "include_dir " + dir + "/conf.d\n", "conf.d/limit.conf": "memory_limit 1000000\n",
	} {
		path := filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"shipped.conf": "good Mosquitto is limited to 1073741824 bytes of memory",
		"folder.conf":  "good Mosquitto is limited to 1000000 bytes of memory",
		"none.conf":    "warn " + dir + "/none.conf does not set memory_limit",
		"missing.conf": "skipped open " + dir + "/missing.conf",
		"":             "",
	} {
		found, cmdline := "", "mosquitto\x00-v\x00"
		if file != "" {
			cmdline = "/usr/sbin/mosquitto\x00-c\x00" + filepath.Join(dir, file) + "\x00"
		}
		checkMemoryLimit(&findingReporter{showFinding: func(f Finding) {
			found = string(f.State) + " " +
				f.Observation
		}},
			proc(t, map[string]string{"cmdline": cmdline}))
		if !strings.HasPrefix(found, want) || want == "" && found != "" {
			t.Errorf("%s: %q, want %q", file, found, want)
		}
	}
}

// TestDescriptorsOfMosquitto examines a running Mosquitto through the real /proc.
func TestDescriptorsOfMosquitto(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/limits"); err != nil {
		t.Skip("this system tells no limits of processes")
	}
	m := brokers.NewMosquitto(t, []byte(brokers.AnonymousListenerConf))
	m.MaxOpenFiles = 1024
	m.Start(t)
	found, text := examine(t, newTarget(t, "tcp://"+m.Address))
	if len(found) != 2 || found[0] != "descriptors warn" || found[1] != "broker memory warn" ||
		!strings.Contains(text, "LimitNOFILE=20000") {
		t.Errorf("found %q in\n%s", found, text)
	}
}

// TestRelativeConfiguration checks that a relative configuration path is resolved in Mosquitto's working directory.
func TestRelativeConfiguration(t *testing.T) {
	process := t.TempDir()
	for name, text := range map[string]string{"cmdline": "mosquitto\x00-c\x00m.conf\x00",
		"cwd/m.conf": "memory_limit 1000\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(process, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(process, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var found []Finding
	checkMemoryLimit(&findingReporter{showFinding: func(f Finding) { found = append(found, f) }}, process)
	if len(found) != 1 || found[0].State != Good || !strings.Contains(found[0].Observation, "1000") {
		t.Errorf("%+v", found)
	}
}
