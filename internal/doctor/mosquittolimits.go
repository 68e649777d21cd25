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

// minOpenFiles is how many open files a broker should be allowed. Each connection takes one, even that of a
// stranger who sends nothing; services have 1024 by default.
const minOpenFiles = 4096

// localMachine is where the doctor finds a Mosquitto on this machine.
type localMachine struct {
	proc   string                                                    // the path of /proc
	runNft func(ctx context.Context, args ...string) (string, error) // runs nft, and returns all that it prints
}

// thisMachine is the machine itself.
var thisMachine = localMachine{proc: "/proc", runNft: func(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "nft", args...).CombinedOutput()
	return string(out), err
}}

// checkMosquitto examines what bounds the Mosquitto on this machine and port: its open files, its memory, and the
// connections of each source.
func (m localMachine) checkMosquitto(ctx context.Context, r *findingReporter, local, remote netip.AddrPort) {
	if local.Addr() != remote.Addr() {
		r.addFinding("descriptors", Skipped, "run `coordinator doctor` or `agentd doctor` there, or look at "+
			"/proc/PID/limits of the broker: want 4096 open files or more",
			"the broker is on another machine")
		return
	}
	process, known := m.mosquittoProcFolder(remote.Port())
	if !known { // no Mosquitto, or the kernel does not tell this user
		return
	}
	checkOpenFiles(r, process)
	checkMemoryLimit(r, process)
	m.checkFirewallConnectionLimit(ctx, r, remote.Port())
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

var maxOpenFilesPattern = regexp.MustCompile(`(?m)^Max open files +([0-9]+)`)

// checkOpenFiles examines how many open files a Mosquitto is allowed.
func checkOpenFiles(r *findingReporter, process string) {
	text, err := os.ReadFile(filepath.Join(process, "limits"))
	found := maxOpenFilesPattern.FindSubmatch(text)
	if err != nil || found == nil {
		return
	}
	limit, err := strconv.Atoi(string(found[1]))
	switch {
	case err != nil: // unlimited
	case limit < minOpenFiles:
		r.addFinding("descriptors", Warn, "give it the drop-in packaging/mosquitto/mosquitto.service.d/fedmesh.conf "+
			"(LimitNOFILE=20000), then systemctl daemon-reload and restart it",
			"Mosquitto may have only %d files open: that many idle connections keep all devices out", limit)
	default:
		r.addGoodFinding("descriptors", "Mosquitto may have %d files open", limit)
	}
}

var (
	memoryLimitPattern = regexp.MustCompile(`(?m)^memory_limit +([1-9][0-9]*)`)
	includeDirPattern  = regexp.MustCompile(`(?m)^include_dir +(.+)$`)
)

// checkMemoryLimit examines whether a Mosquitto's configuration bounds its memory: any device may have messages
// retained.
func checkMemoryLimit(r *findingReporter, process string) {
	args, _ := os.ReadFile(filepath.Join(process, "cmdline")) // empty: nothing is known
	words := strings.Split(string(args), "\x00")
	i := slices.Index(words, "-c")
	if i < 0 || i+1 == len(words) {
		return
	}
	file := words[i+1]
	if !filepath.IsAbs(file) { // relative to the broker's folder, not to the doctor's
		file = filepath.Join(process, "cwd", file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		r.addFinding("broker memory", Skipped, "run the doctor as root", "%v", err)
		return
	}
	for _, dir := range includeDirPattern.FindAllSubmatch(text, -1) {
		names, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir[1])), "*.conf"))
		for _, name := range names {
			more, _ := os.ReadFile(name) // as if it were not there
			text = append(append(text, '\n'), more...)
		}
	}
	if limit := memoryLimitPattern.FindSubmatch(text); limit != nil {
		r.addGoodFinding("broker memory", "Mosquitto takes at most %s bytes", limit[1])
		return
	}
	r.addFinding("broker memory", Warn,
		"set memory_limit (packaging/mosquitto/mosquitto.conf says how much), then restart it",
		"%s sets no memory_limit: one device can have Mosquitto retain messages until the machine has no memory", file)
}

// checkFirewallConnectionLimit examines whether something bounds the connections of each source, where others can reach
// the broker.
func (m localMachine) checkFirewallConnectionLimit(ctx context.Context, r *findingReporter, port uint16) {
	open := slices.ContainsFunc(m.listeningSocketsOn(port), func(s listeningSocket) bool { return !s.isLoopbackOnly })
	if !open {
		return
	}
	const mend = "install packaging/mosquitto/fedmesh.nft as its first lines say, or have another firewall bound the " +
		"connections of each source"
	out, err := m.runNft(ctx, "list", "set", "inet", "fedmesh", "fedmesh")
	switch named := slices.Contains(strings.FieldsFunc(out, func(c rune) bool { return c < '0' || c > '9' }),
		strconv.Itoa(int(port))); {
	case err == nil && named:
		r.addGoodFinding("firewall", "nftables bounds the connections of each source to port %d", port)
	case err == nil:
		r.addFinding("firewall", Warn, "add the port to the set fedmesh of fedmesh.nft, and load it",
			"the nftables rules of fedmesh do not name port %d: one machine can take all connections", port)
	case strings.Contains(out, "No such file"), errors.Is(err, exec.ErrNotFound):
		r.addFinding("firewall", Warn, mend,
			"others can reach port %d, and fedmesh.nft is not loaded: one machine can take "+
				"all connections", port)
	default:
		r.addFinding("firewall", Skipped, "run the doctor as root", "nft does not tell its rules: %s",
			strings.TrimSpace(fmt.Sprintf("%.100s %v", strings.TrimSpace(out), err)))
	}
}

// mosquittoProcFolder returns the folder in /proc of the Mosquitto that listens on a port. Only root and Mosquitto's
// own user can see which process that is; other users get the one that runs, if there is exactly one.
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

// listeningSocket is one that listens.
type listeningSocket struct {
	fdLink         string // in the form of those in /proc/PID/fd
	isLoopbackOnly bool   // nobody else reaches it
}

// isLoopbackProcAddress reports whether a local address is one of the machine alone. The kernel writes it in words of
// 32 bits, each as one number, and its port behind a colon.
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
		text, _ := os.ReadFile(filepath.Join(m.proc, "net", file)) // none without IPv6
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" { // LISTEN
				sockets = append(sockets, listeningSocket{"socket:[" + f[9] + "]", isLoopbackProcAddress(f[1])})
			}
		}
	}
	return sockets
}
