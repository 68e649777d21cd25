package doctor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// minOpenFiles is the smallest limit of open files that the doctor accepts for a broker. Each connection needs one open
// file, even the connection of an unauthenticated client. The default limit for services is 1024.
const minOpenFiles = 4096

// localMachine gives access to the processes and the firewall of a machine.
type localMachine struct {
	proc string // path of /proc
	// runNft runs the firewall tool nft and returns its output.
	runNft func(ctx context.Context, args ...string) (string, error)
}

// thisMachine is the machine on which the doctor runs.
var thisMachine = localMachine{proc: "/proc", runNft: func(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "nft", args...).CombinedOutput()
	return string(out), err
}}

// checkMosquitto checks the limits of the Mosquitto process that listens on the given port of this machine: open files,
// memory, and connections per source address.
func (m localMachine) checkMosquitto(ctx context.Context, r *findingReporter, local, remote netip.AddrPort) {
	if local.Addr() != remote.Addr() {
		r.addFinding("descriptors", Skipped, "run `coordinator doctor` or `agentd doctor` on the broker's machine, "+
			"or check in /proc/PID/limits that the broker may open at least 4096 files",
			"the broker's limit of open files was not checked because the broker is on another machine")
		return
	}
	process, known := m.mosquittoProcFolder(remote.Port())
	if !known { // no Mosquitto, or not visible to this user
		return
	}
	checkOpenFiles(r, process)
	checkMemoryLimit(r, process)
	m.checkFirewallConnectionLimit(ctx, r, remote.Port())
}

// addrPort returns the address of one end of a TCP connection. For other kinds of networks it returns the invalid
// address.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

var maxOpenFilesPattern = regexp.MustCompile(`(?m)^Max open files +([0-9]+)`)

func checkOpenFiles(r *findingReporter, process string) {
	text, err := os.ReadFile(filepath.Join(process, "limits"))
	found := maxOpenFilesPattern.FindSubmatch(text)
	if err != nil || found == nil {
		return
	}
	limit, err := strconv.Atoi(string(found[1]))
	switch {
	case err != nil: // not a number: the limit is "unlimited"
	case limit < minOpenFiles:
		r.addFinding("descriptors", Warn, "install the drop-in packaging/mosquitto/mosquitto.service.d/fedmesh.conf "+
			"(LimitNOFILE=20000), then run systemctl daemon-reload and restart Mosquitto",
			"Mosquitto is limited to %d open files, so this number of idle connections would lock out all devices",
			limit)
	default:
		r.addGoodFinding("descriptors", "Mosquitto is limited to %d open files", limit)
	}
}

var (
	memoryLimitPattern = regexp.MustCompile(`(?m)^memory_limit +([1-9][0-9]*)`)
	includeDirPattern  = regexp.MustCompile(`(?m)^include_dir +(.+)$`)
)

// checkMemoryLimit checks whether Mosquitto's configuration sets a memory limit. Without a limit, a device could fill
// the memory with retained messages.
func checkMemoryLimit(r *findingReporter, process string) {
	args, _ := os.ReadFile(filepath.Join(process, "cmdline")) // args is empty on an error
	words := strings.Split(string(args), "\x00")
	i := slices.Index(words, "-c")
	if i < 0 || i+1 == len(words) {
		return
	}
	file := words[i+1]
	if !filepath.IsAbs(file) { // the path is relative to the broker's working directory
		file = filepath.Join(process, "cwd", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.addFinding("broker memory", Skipped, "run the doctor command as root", "%v", err)
		return
	}
	for _, dir := range includeDirPattern.FindAllSubmatch(text, -1) {
		names, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir[1])), "*.conf"))
		for _, name := range names {
			more, _ := os.ReadFile(name) // an unreadable file is treated as empty
			text = append(append(text, '\n'), more...)
		}
	}
	if limit := memoryLimitPattern.FindSubmatch(text); limit != nil {
		r.addGoodFinding("broker memory", "Mosquitto is limited to %s bytes of memory", limit[1])
		return
	}
	r.addFinding("broker memory", Warn,
		"set memory_limit (see packaging/mosquitto/mosquitto.conf), then restart Mosquitto",
		"%s does not set memory_limit: a single device can fill the machine's memory with retained messages", file)
}

// checkFirewallConnectionLimit checks whether a firewall limits the number of connections per source address. It does
// nothing if other machines cannot reach the broker.
func (m localMachine) checkFirewallConnectionLimit(ctx context.Context, r *findingReporter, port uint16) {
	open := slices.ContainsFunc(m.listeningSocketsOn(port), func(s listeningSocket) bool { return !s.isLoopbackOnly })
	if !open {
		return
	}
	const mend = "install packaging/mosquitto/fedmesh.nft as described in that file, or limit the connections per " +
		"source address with another firewall"
	out, err := m.runNft(ctx, "list", "set", "inet", "fedmesh", "fedmesh")
	switch named := slices.Contains(strings.FieldsFunc(out, func(c rune) bool { return c < '0' || c > '9' }),
		strconv.Itoa(int(port))); {
	case err == nil && named:
		r.addGoodFinding("firewall", "nftables limits the number of connections per source address to port %d", port)
	case err == nil:
		r.addFinding("firewall", Warn, "add the port to the set fedmesh in fedmesh.nft, and load the file with nft",
			"the nftables rules of fedmesh do not contain port %d: a single machine can use up all connections", port)
	case strings.Contains(out, "No such file"), errors.Is(err, exec.ErrNotFound):
		r.addFinding("firewall", Warn, mend,
			"port %d is reachable from other machines and fedmesh.nft is not loaded: a single machine can use up all "+
				"connections", port)
	default:
		r.addFinding("firewall", Skipped, "run the doctor command as root", "cannot list the nftables rules: %s",
			strings.TrimSpace(fmt.Sprintf("%.100s %v", strings.TrimSpace(out), err)))
	}
}

// mosquittoProcFolder returns the /proc folder of the Mosquitto that listens on the given port. Only root and
// Mosquitto's own user can identify this process. For other users, the function returns the folder of the only running
// Mosquitto, if there is exactly one.
func (m localMachine) mosquittoProcFolder(port uint16) (dir string, known bool) {
	names, _ := filepath.Glob(filepath.Join(m.proc, "[0-9]*", "comm"))
	listening := m.listeningSocketsOn(port)
	var unseen []string
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(comm)) != "mosquitto" {
			continue
		}
		process := filepath.Dir(name)
		files, err := os.ReadDir(filepath.Join(process, "fd"))
		for _, f := range files {
			to, err := os.Readlink(filepath.Join(process, "fd", f.Name()))
			if err == nil && slices.ContainsFunc(listening, func(s listeningSocket) bool { return s.fdLink == to }) {
				return process, true
			}
		}
		if err != nil {
			unseen = append(unseen, process)
		}
	}
	if len(unseen) != 1 {
		return "", false
	}
	return unseen[0], true
}

// listeningSocket is a listening TCP socket.
type listeningSocket struct {
	fdLink         string // link target of the socket in /proc/PID/fd
	isLoopbackOnly bool   // true if the socket cannot be reached from other machines
}

// isLoopbackProcAddress reports whether a local address from /proc/net/tcp is a loopback address. The kernel writes the
// address as 32-bit words in host byte order, followed by a colon and the port.
func isLoopbackProcAddress(text string) bool {
	text, _, _ = strings.Cut(text, ":")
	words, err := hex.DecodeString(text)
	if err != nil || len(words)%4 != 0 {
		return false
	}
	for at := 0; at < len(words); at += 4 {
		binary.NativeEndian.PutUint32(words[at:], binary.BigEndian.Uint32(words[at:]))
	}
	addr, _ := netip.AddrFromSlice(words)
	return addr.Unmap().IsLoopback()
}

// listeningSocketsOn returns the sockets that listen on a port.
func (m localMachine) listeningSocketsOn(port uint16) (sockets []listeningSocket) {
	for _, file := range []string{"tcp", "tcp6"} {
		text, _ := os.ReadFile(filepath.Join(m.proc, "net", file)) // the file tcp6 is missing on systems without IPv6
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" { // state 0A is LISTEN
				sockets = append(sockets, listeningSocket{"socket:[" + f[9] + "]", isLoopbackProcAddress(f[1])})
			}
		}
	}
	return sockets
}
