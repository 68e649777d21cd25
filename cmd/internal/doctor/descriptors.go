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

// leastDescriptors is how many open files a broker should be allowed. Each connection takes one, even that of a
// stranger who sends nothing; services have 1024 by default.
const leastDescriptors = 4096

// descriptors examines how many open files the Mosquitto on this machine and port is allowed. proc is the path of
// /proc.
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
			"Mosquitto may have only %d files open: that many idle connections keep all devices out", limit)
	default:
		r.good("descriptors", "Mosquitto may have %d files open", limit)
	}
}

// addrPort returns the address of one end of a TCP connection; it is not valid for another network.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

var maxOpenFiles = regexp.MustCompile(`(?m)^Max open files +([0-9]+)`)

// openFiles returns the open-file limit of the Mosquitto that listens on a port. Only root and Mosquitto's own user
// can see which process that is; other users get the limit if exactly one Mosquitto runs.
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

// listeners returns the sockets that listen on a port, in the form of the links in /proc/PID/fd.
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
