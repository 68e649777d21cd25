package doctor

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/testkit/brokers"
)

// proc lays out what the kernel tells of processes.
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

// The kernel's own lines: one that listens on port 8883, and a connection to it.
const sockets = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:22B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000   107        0 4711 1 0000000000000000 100 0 0 10 0
   1: 0100007F:22B3 0100007F:D431 01 00000000:00000000 00:00000000 00000000   107        0 4712 1 0000000000000000 20 4 30 10 -1
`

func TestDescriptors(t *testing.T) {
	here, there := netip.MustParseAddrPort("192.0.2.1:54321"), netip.MustParseAddrPort("192.0.2.7:8883")
	same := netip.MustParseAddrPort("192.0.2.1:8883")
	for _, tt := range []struct {
		name   string
		files  map[string]string
		remote netip.AddrPort
		want   string
	}{
		{"another machine", nil, there, "skipped the broker is on another machine"},
		{"no Mosquitto", map[string]string{"7/comm": "emqx\n", "7/limits": limits(9)}, same, ""},
		{"systemd's limit", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(1024),
			"7/fd/4": "-> socket:[4711]", "net/tcp": sockets}, same,
			"warn Mosquitto may have only 1024 files open: that many idle connections keep all devices out"},
		{"our drop-in", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(20000),
			"7/fd/4": "-> socket:[4711]", "net/tcp": sockets}, same,
			"good Mosquitto may have 20000 files open"},
		{"of two, the one on the port", map[string]string{
			"5/comm": "mosquitto\n", "5/limits": limits(1024), "5/fd/4": "-> socket:[99]",
			"7/comm": "mosquitto\n", "7/limits": limits(20000), "7/fd/4": "-> socket:[4711]", "net/tcp6": sockets,
		}, same, "good Mosquitto may have 20000 files open"},
		{"it listens elsewhere", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(1024),
			"7/fd/4": "-> socket:[99]", "net/tcp": sockets}, same, ""},
		{"its files are not shown", map[string]string{"7/comm": "mosquitto\n", "7/limits": limits(1024),
			"net/tcp": sockets}, same, "warn Mosquitto may have only 1024 files open"},
		{"nor which of two", map[string]string{"5/comm": "mosquitto\n", "5/limits": limits(20000),
			"7/comm": "mosquitto\n", "7/limits": limits(1024), "net/tcp": sockets}, same, ""},
	} {
		found := ""
		descriptors(&report{show: func(f Finding) { found = string(f.State) + " " + f.Found }}, proc(t, tt.files), here,
			tt.remote)
		if !strings.HasPrefix(found, tt.want) || tt.want == "" && found != "" {
			t.Errorf("%s: %q, want %q", tt.name, found, tt.want)
		}
	}
}

// A real Mosquitto, with the real kernel's word.
func TestDescriptorsOfMosquitto(t *testing.T) {
	if _, err := os.Stat("/proc/self/limits"); err != nil {
		t.Skip("this system tells no limits of processes")
	}
	m := brokers.NewMosquitto(t, []byte(brokers.Open))
	m.Descriptors = 1024
	m.Start(t)
	found, text := examine(t, newTarget(t, "tcp://"+m.Address))
	if len(found) != 1 || found[0] != "descriptors warn" || !strings.Contains(text, "LimitNOFILE=20000") {
		t.Errorf("found %q in\n%s", found, text)
	}
}
