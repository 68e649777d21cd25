package doctor

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// leastDescriptors is how many files a broker should be able to have open. Each connection is one, also of a stranger
// who says nothing; services have 1024 unless their unit says otherwise.
const leastDescriptors = 4096

// descriptors examines how many files a Mosquitto may have open that listens on the port on this machine. proc is where
// the kernel tells of processes.
func descriptors(r *report, proc string, local, remote netip.AddrPort) {
	const mend = "give it the drop-in packaging/mosquitto/mosquitto.service.d/fedmesh.conf (LimitNOFILE=20000), then " +
		"systemctl daemon-reload and restart it"
	if local.Addr() != remote.Addr() {
		r.add("descriptors", Skipped, "run `coordinator doctor` or `agentd doctor` there, or look at "+
			"/proc/PID/limits of the broker: want 4096 open files or more",
			"the broker is on another machine")
		return
	}
	limit, known := openFiles(proc, remote.Port())
	switch {
	case !known: // no Mosquitto, or the kernel does not tell this user
	case limit < leastDescriptors:
		r.add("descriptors", Warn, mend,
			"Mosquitto may have %d files open: as many connections that say nothing keep all devices out", limit)
	default:
		r.good("descriptors", "Mosquitto may have %d files open", limit)
	}
}

// addrPort is the address of an end of a TCP connection.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

var maxOpenFiles = regexp.MustCompile(`(?m)^Max open files +([0-9]+)`)

// openFiles returns the limit of the Mosquitto that listens on a port. Only root, and Mosquitto's own user, see which
// of several that is; for others the only one on the machine counts.
func openFiles(proc string, port uint16) (limit int, known bool) {
	names, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "comm"))
	listening := listeners(proc, port)
	var limits []int
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != "mosquitto" {
			continue
		}
		process := filepath.Dir(name)
		text, err := os.ReadFile(filepath.Join(process, "limits"))
		m := maxOpenFiles.FindSubmatch(text)
		if err != nil || m == nil {
			continue
		}
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			continue
		}
		files, err := os.ReadDir(filepath.Join(process, "fd"))
		for _, f := range files {
			if to, err := os.Readlink(filepath.Join(process, "fd", f.Name())); err == nil &&
				slices.Contains(listening, to) {
				return n, true
			}
		}
		if err != nil {
			limits = append(limits, n)
		}
	}
	if len(limits) != 1 {
		return 0, false
	}
	return limits[0], true
}

// listeners returns the sockets that listen on a port, as links to them read.
func listeners(proc string, port uint16) (sockets []string) {
	for _, file := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(proc, "net", file)) // none without IPv6
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" { // LISTEN
				sockets = append(sockets, "socket:["+f[9]+"]")
			}
		}
	}
	return sockets
}
