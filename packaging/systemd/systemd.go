// Package systemd generates the systemd units of both programs, for the packages and for the command "service install".
//
// The packages contain the generated files agentd.service and coordinator.service. To update these files, run go test
// -update.
package systemd

import (
	_ "embed" // The blank import enables go:embed.
	"fmt"
	"strings"
)

//go:embed unit.service.in
var text string

// Unit contains the values that differ between the systemd units of the programs.
type Unit struct {
	Program     string // name of the program, its user and its folders in /etc and /var/lib
	Description string
	User        string
	Executable  string // absolute path of the executable
	Config      string // absolute path of the configuration file; "" means the program's default path
	StateDir    string // absolute path of the state folder; "" means /var/lib/Program
	Secrets     []string
	Limits      []string // additional lines of the unit's [Service] section
}

// Agent returns the unit of agentd for its package. The service has a low CPU and I/O priority, so that it does not
// slow down other services of the device.
func Agent() Unit {
	return Unit{
		Program: "agentd", Description: "Agent of a federated-learning system", User: "agentd",
		Executable: "/usr/bin/agentd",
		Secrets: []string{"agent.key", "client.key", "d2d-password", "mqtt-password", "predict-password",
			"readings-password"},
		Limits: append(memory(512),
			"TasksMax=128", "Nice=10", "CPUWeight=20", "IOSchedulingClass=idle", "OOMScoreAdjust=500",
			// If the kernel kills a trainer or command that uses too much memory, agentd continues.
			"OOMPolicy=continue"),
	}
}

// Coordinator returns the unit of the coordinator for its package.
func Coordinator() Unit {
	return Unit{
		Program: "coordinator", Description: "Coordinator of a federated-learning system", User: "coordinator",
		Executable: "/usr/bin/coordinator",
		Secrets: []string{"ca.key", "client.key", "coordinator.key", "mqtt-password",
			"nats-password", "nats.key"},
		Limits: append(memory(2048), "TasksMax=512"),
	}
}

// memory returns unit lines that limit the memory of the service to mib MiB. They also set GOMEMLIMIT to four fifths of
// the limit, so that Go collects garbage more often near the limit. They do not set MemoryHigh, because it would slow
// down a process with a memory leak instead of ending it.
func memory(mib int) []string {
	return []string{fmt.Sprintf("MemoryMax=%dM", mib), fmt.Sprintf("Environment=GOMEMLIMIT=%dMiB", mib*4/5)}
}

// Text returns the text of the unit file. It returns an error if a value contains characters that a unit file cannot
// contain.
func (u Unit) Text() (string, error) {
	for what, value := range map[string]string{
		"the program's path": u.Executable, "the configuration's path": u.Config, "the state folder": u.StateDir,
		"the user's name": u.User,
	} {
		if strings.ContainsFunc(value, isSpecialInUnit) {
			return "", fmt.Errorf("%s, %q, contains characters with a special meaning in a systemd unit: blanks, "+
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

// isSpecialInUnit reports whether the character r has a special meaning in a unit file or in the scripts that generate
// unit files.
func isSpecialInUnit(r rune) bool {
	return r <= ' ' || r == 0x7f || strings.ContainsRune(`"'\%${};`, r)
}
