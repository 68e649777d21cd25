//go:build linux && machine

package machine

import (
	"strconv"
	"strings"
	"testing"
)

// services contains the port of the metrics server for each program.
var services = map[string]int{"agentd": 9465, "coordinator": 9464}

// TestService installs each program as a service with the command "service install". TestService tests starting,
// crashes and removal.
func TestService(t *testing.T) {
	t.Parallel()
	for program, port := range services {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			m := newSite(t)
			life := life{m, program, port, "/etc/systemd/system/" + program + ".service",
				"/etc/" + program + "/" + program + ".yaml"}
			life.refusals(t)
			life.install(t)
			life.start(t)
			life.reload(t)
			life.impatient()
			life.crash(t)
			life.hang(t)
			life.badStart(t)
			life.remove(t)
		})
	}
}

// life is a program on a machine that runs as a service.
type life struct {
	*site
	program      string
	port         int
	unit, config string
}

func (l life) service(args ...string) []string {
	return append([]string{l.program, "service"}, args...)
}

// refusals checks installations that must be refused. A refused installation must leave no files behind.
func (l life) refusals(t *testing.T) {
	text := l.Must("cat", l.config) + "\n"
	l.wantFailure(4, "not installed", l.service("status")...)
	l.wantFailure(1, "not installed", l.service("start")...)
	l.wantFailure(1, "not installed", l.service("uninstall")...)
	l.wantFailure(1, "useradd", l.service("install")...)
	l.addUser(l.program)

	l.configure(l.program, text+"federatoin: air\n")
	l.wantFailure(78, l.config+":", l.service("install")...)
	l.configure(l.program, text)

	l.Must("chmod", "600", l.config)
	l.wantFailure(1, "no read permission for "+l.config, l.service("install")...)
	l.Must("chmod", "644", l.config)

	l.Shell("install -D -m 755 -t /root/bin " + DropDir + "/" + l.program)
	l.wantFailure(1, "ProtectHome", "/root/bin/"+l.program, "service", "install")
	l.wantFailure(1, "only root", "setpriv", "--reuid=nobody", "--", l.program, "service", "install")

	packaged := "/usr/lib/systemd/system/" + l.program + ".service"
	l.Write(packaged, 0o644, "[Service]\nExecStart=/usr/bin/"+l.program+" run\n")
	l.wantFailure(1, "installed by a package", l.service("install")...)
	l.wantFailure(1, "remove the package", l.service("uninstall")...)
	l.Must("rm", packaged)

	// This installation fails halfway, because systemd cannot create links.
	l.Shell("mv /etc/systemd/system/multi-user.target.wants /root/wants; echo > " +
		"/etc/systemd/system/multi-user.target.wants")
	l.wantFailure(1, "all changes were undone", l.service("install")...)
	l.Shell("rm /etc/systemd/system/multi-user.target.wants; " +
		"mv /root/wants /etc/systemd/system/multi-user.target.wants")
	if left := l.leftovers(); left != "" {
		t.Errorf("refused installations left %s", left)
	}
}

// leftovers returns the list of files of the service that remain on the machine.
func (l life) leftovers() string {
	return l.Must("find", "/etc/systemd", "/run/systemd/system", "/etc/init.d", "-name", "*"+l.program+"*")
}

func (l life) install(t *testing.T) {
	planned := l.Must(l.service("install", "--print")...)
	if l.Exists(l.unit) {
		t.Fatal("--print installs")
	}
	l.Must(l.service("install")...)
	if installed := l.Must("cat", l.unit); installed != planned {
		t.Errorf("installed is not what was printed, but\n%s", installed)
	}
	if got := l.Must("systemctl", "is-enabled", l.program); got != "enabled" {
		t.Errorf("the service is %s", got)
	}
	l.wantFailure(3, "is inactive", l.service("status")...)
	l.wantFailure(1, "already exists", l.service("install")...)
}

func (l life) start(t *testing.T) {
	l.Must(l.service("start")...)
	l.Await("the broker is connected", func() bool {
		return strings.HasPrefix(l.property(l.program, "StatusText"), "connected to the broker")
	})
	if text := l.Must(l.service("status")...); !strings.Contains(text, l.program+" is active (running)") ||
		!strings.Contains(text, "connected to the broker") {
		t.Errorf("the status is\n%s", text)
	}
	pid := l.property(l.program, "MainPID")
	if user := l.Must("stat", "--format=%U", "/proc/"+pid); user != l.program {
		t.Errorf("the program runs as %s", user)
	}
	if got := l.Must("stat", "--format=%U %a", "/var/lib/"+l.program); got != l.program+" 700" {
		t.Errorf("the state folder is %s", got)
	}
}

func (l life) reload(t *testing.T) {
	text, pid := l.Must("cat", l.config)+"\n", l.property(l.program, "MainPID")
	metric := l.program + "_config_last_reload_successful "

	l.configure(l.program, strings.Replace(text, "level: info", "level: debug", 1))
	l.Must("systemctl", "reload", l.program)
	l.awaitJournal("configuration reloaded")

	l.configure(l.program, text+"federatoin: air\n")
	l.wantFailure(1, "Job for "+l.program, "systemctl", "reload", l.program)
	l.awaitJournal("the previous configuration stays in effect: " + l.config + ":")
	l.wantFailure(1, "the service continues", l.service("restart")...)
	if !strings.Contains(l.metrics(l.port), "\n"+metric+"0\n") {
		t.Errorf("%s is not 0", metric)
	}
	l.configure(l.program, text+"state_dir: /var/lib/other\n")
	l.Must("systemctl", "reload", l.program)
	l.awaitJournal("take effect only after a restart keys=[state_dir]")
	if !strings.Contains(l.metrics(l.port), "\n"+metric+"1\n") {
		t.Errorf("%s is not 1", metric)
	}
	l.configure(l.program, text)
	if now := l.property(l.program, "MainPID"); now != pid || l.property(l.program, "ActiveState") != "active" {
		t.Errorf("process %s became %s by reloading", pid, now)
	}
}

func (l life) awaitJournal(line string) {
	l.t.Helper()
	l.Await("the journal says "+line, func() bool { return strings.Contains(l.journal(l.program), line) })
}

// impatient configures a short watchdog timeout for the next process. The timeout is not used in earlier steps, because
// a busy machine could exceed it.
func (l life) impatient() {
	l.dropIn(l.program, "[Service]\nRestartSec=100ms\nWatchdogSec=5s\nTimeoutAbortSec=1s\n")
}

// crash kills the process of the service and waits until systemd has restarted it.
func (l life) crash(t *testing.T) {
	pid := l.property(l.program, "MainPID")
	l.Must("systemctl", "kill", "--kill-whom=main", "--signal=KILL", l.program)
	l.awaitRestart(pid)
}

// hang stops the process with SIGSTOP, so that the watchdog must restart it.
func (l life) hang(t *testing.T) {
	pid := l.property(l.program, "MainPID")
	l.Must("systemctl", "kill", "--kill-whom=main", "--signal=STOP", l.program)
	l.awaitRestart(pid)
	if log := l.Must("journalctl", "--no-pager", "--output=cat", "--unit="+l.program); !strings.Contains(log,
		"Watchdog timeout") {
		t.Errorf("no watchdog in the journal:\n%s", log)
	}
	l.dropIn(l.program, "[Service]\nRestartSec=100ms\n")
}

func (l life) awaitRestart(pid string) {
	l.t.Helper()
	l.Await("the service is started again", func() bool {
		return l.property(l.program, "MainPID") != pid && l.property(l.program, "ActiveState") == "active"
	})
}

func (l life) badStart(t *testing.T) {
	l.Must(l.service("stop")...)
	l.wantFailure(3, "is inactive", l.service("status")...)
	text := l.Must("cat", l.config) + "\n"
	l.configure(l.program, text+"federatoin: air\n")
	line := strings.Count(text, "\n") + 1
	want := l.config + ":" + strconv.Itoa(line) + `:1: unknown key "federatoin"; did you mean "federation"?`
	l.wantFailure(1, want, l.service("start")...)
	lines := strings.Split(l.journal(l.program), "\n")
	if last := lines[len(lines)-1]; last != want {
		t.Errorf("the journal's last line is %q, want %q", last, want)
	}
	if state, status, restarts := l.property(l.program, "ActiveState"), l.property(l.program, "ExecMainStatus"),
		l.property(l.program, "NRestarts"); state != "failed" || status != "78" || restarts != "0" {
		t.Errorf("the service is %s, with exit status %s, after %s restarts", state, status, restarts)
	}
	l.wantFailure(3, "exit status 78", l.service("status")...)
	l.configure(l.program, text)
	l.Must(l.service("restart")...)
	l.Must(l.service("status")...)
}

func (l life) remove(t *testing.T) {
	l.Must("rm", "-r", l.unit+".d")
	l.Must("systemctl", "daemon-reload")
	process := "/proc/" + l.property(l.program, "MainPID") + "/comm"
	if !l.Exists(process) {
		t.Error("there is no process to end")
	}
	l.Must(l.service("uninstall")...)
	if l.Exists(process) {
		t.Error("the process outlives the service")
	}
	if left := l.leftovers(); left != "" {
		t.Errorf("the service left %s", left)
	}
	l.wantFailure(4, "not installed", l.service("status")...)
	if !l.Exists("/var/lib/"+l.program) || !l.Exists(l.config) {
		t.Error("the state or the configuration went with the service")
	}
}

// TestRounds runs both services and checks that they complete training rounds.
func TestRounds(t *testing.T) {
	t.Parallel()
	m := newSite(t)
	for program := range services {
		m.addUser(program)
		m.Must(program, "service", "install", "--now")
	}
	m.Await("the run is finished", func() bool {
		return strings.Contains(m.property("coordinator", "StatusText"), "run finished (rounds) with model version 3")
	})
	m.Await("the agent has heard of it",
		func() bool { return strings.Contains(m.property("agentd", "StatusText"), "round 3 ended: accepted") })
	// Adding a device must not require a restart of the coordinator.
	key := m.Must("agentd", "key", "new", "/root/other.key")
	m.Shell("echo 'station-2 " + key + "' >> /etc/coordinator/agents.keys; systemctl reload coordinator")
	m.Await("the list is taken", func() bool {
		return strings.Contains(m.journal("coordinator"), "configuration reloaded")
	})
}
