package service

import (
	_ "embed" // the texts
	"fmt"
	"html"
	"strings"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// serviceManager is a service manager.
type serviceManager struct {
	filePathFormat    string // path of a service's file, with %s for its name; empty if there is none
	renderServiceFile func(u systemd.Unit) (string, error)
	unitTextOption    string // of kardianos/service, for the text
}

// The names are those of kardianos/service.
const (
	systemdPlatform = "linux-systemd"
	windowsPlatform = "windows-service"
)

var platformByName = map[string]serviceManager{
	systemdPlatform:  {"/etc/systemd/system/%s.service", systemd.Unit.Text, "SystemdScript"},
	"linux-openrc":   {"/etc/init.d/%s", renderOpenRC, "OpenRCScript"},
	"darwin-launchd": {"/Library/LaunchDaemons/%s.plist", renderLaunchd, "LaunchdConfig"},
	windowsPlatform:  {"", renderWindows, ""},
}

//go:embed openrc.in
var openRCTemplate string

//go:embed launchd.plist.in
var launchdTemplate string

func renderOpenRC(u systemd.Unit) (string, error) {
	if _, err := u.Text(); err != nil { // a value that is not safe in a unit is not safe in a shell script
		return "", err
	}
	stateDir := u.StateDir
	if stateDir == "" {
		stateDir = "/var/lib/" + u.Program
	}
	return strings.NewReplacer("@Program@", u.Program, "@Description@", u.Description, "@User@", u.User,
		"@Executable@", u.Executable,
		"@Arguments@", strings.Join(commandArguments(u), " "), "@StateDir@", stateDir).Replace(openRCTemplate), nil
}

func renderLaunchd(u systemd.Unit) (string, error) {
	command, user := "", ""
	for _, word := range append([]string{u.Executable}, commandArguments(u)...) {
		command += "\n\t\t<string>" + html.EscapeString(word) + "</string>"
	}
	if u.User != "" {
		user = "\n\t<key>UserName</key>\n\t<string>" + html.EscapeString(u.User) + "</string>"
	}
	if strings.Contains(command+user, "{{") { // kardianos/service takes it for a template
		return "", fmt.Errorf("a path or the user contains {{, which is not allowed: rename it")
	}
	return strings.NewReplacer("@Program@", html.EscapeString(u.Program), "@Command@", command,
		"@User@", user).Replace(launchdTemplate), nil
}

// renderWindows describes what is registered; Windows has no file of a service.
func renderWindows(u systemd.Unit) (string, error) {
	user := u.User
	if user == "" {
		user = "LocalSystem"
	}
	return fmt.Sprintf("service:  %s (%s)\ncommand:  %q %s\naccount:  %s\nstarts:   with the system, "+
		"delayed\nfailure:  started again after 5s\n",
		u.Program, u.Description, u.Executable, strings.Join(commandArguments(u), " "), user), nil
}

// commandArguments returns the command line after the program's path.
func commandArguments(u systemd.Unit) []string {
	if u.Config == "" {
		return []string{"run"}
	}
	return []string{"run", "--config", u.Config}
}
