// Package systemd holds the one unit text of both programs, for the packages
// and for "service install".
//
// agentd.service and coordinator.service are what it comes to, as the packages
// ship it; go test -update writes them.
package systemd

import (
	_ "embed" // the text
	"fmt"
	"strings"
)

//go:embed unit.service.in
var text string

// Unit is what differs between one service and another.
type Unit struct {
	Program     string // its name, that of its folders below /etc and /var/lib, and of its user
	Description string
	User        string
	Executable  string // absolute path
	Config      string // absolute path; the program's default if empty
	StateDir    string // absolute path; /var/lib/Program if empty
	Secrets     []string
	Limits      []string // lines of [Service]
}

// Agent returns the unit of agentd as its package installs it. It yields to
// everything else on the device.
func Agent() Unit {
	return Unit{
		Program: "agentd", Description: "Agent of a learning federation", User: "agentd", Executable: "/usr/bin/agentd",
		Secrets: []string{"agent.key", "client.key", "d2d-password", "mqtt-password", "predict-password",
			"readings-password"},
		Limits: append(memory(512),
			"TasksMax=128", "Nice=10", "CPUWeight=20", "IOSchedulingClass=idle", "OOMScoreAdjust=500",
			"OOMPolicy=continue"), // a trainer or a command that takes too much ends, and agentd lives
	}
}

// Coordinator returns the unit of the coordinator as its package installs it.
func Coordinator() Unit {
	return Unit{
		Program: "coordinator", Description: "Coordinator of a learning federation", User: "coordinator",
		Executable: "/usr/bin/coordinator",
		Secrets: []string{"ca.key", "client.key", "coordinator.key", "mqtt-password",
			"nats-password", "nats.key"},
		Limits: append(memory(2048), "TasksMax=512"),
	}
}

// memory bounds the process at some MiB, and Go's heap at four fifths of them:
// the collector should work harder before the kernel kills. There is no
// MemoryHigh, which would slow a leak down to a standstill that nobody ends.
func memory(mib int) []string {
	return []string{fmt.Sprintf("MemoryMax=%dM", mib), fmt.Sprintf("Environment=GOMEMLIMIT=%dMiB", mib*4/5)}
}

// Text returns the unit file. The error names what cannot stand in one.
func (u Unit) Text() (string, error) {
	for what, value := range map[string]string{
		"the program's path": u.Executable, "the configuration's path": u.Config, "the state folder": u.StateDir,
		"the user's name": u.User,
	} {
		if strings.ContainsFunc(value, isSpecialInUnit) {
			return "", fmt.Errorf("%s, %q, has characters that a systemd unit has its own ideas about: blanks, "+
				"quotes, %%, $ or a backslash", what, value)
		}
	}
	command, check := u.Executable+" run", u.Executable+" config check"
	if u.Config != "" {
		command, check = command+" --config "+u.Config, check+" --config "+u.Config
	}
	statePath := ""
	if u.StateDir != "" {
		statePath = "ReadWritePaths=" + u.StateDir + "\n"
	}
	var credentials []string
	for _, name := range u.Secrets {
		credentials = append(credentials, "LoadCredential="+name+":/etc/"+u.Program+"/"+name,
			"SetCredential="+name+`:\x0a`)
	}
	return strings.NewReplacer(
		"@Program@", u.Program, "@Description@", u.Description, "@User@", u.User, "@Command@", command,
		"@Check@", check,
		"@StatePath@\n", statePath, "@Credentials@", strings.Join(credentials, "\n"),
		"@Limits@", strings.Join(u.Limits, "\n"),
	).Replace(text), nil
}

// isSpecialInUnit reports whether a character has a meaning in a unit file, to systemd
// or to those who write one for us.
func isSpecialInUnit(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`"'\%${};`, r)
}
