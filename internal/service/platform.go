package service

import (
	_ "embed" // for the embedded templates
	"fmt"
	"html"
	"strings"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// serviceManager describes how services are installed with one kind of service manager, such as systemd.
type serviceManager struct {
	filePathFormat    string // path of a service file, with %s for the service's name; empty without service files
	renderServiceFile func(u systemd.Unit) (string, error)
	unitTextOption    string // kardianos/service option that takes the service file text
}

// Platform names of kardianos/service.
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
	if _, err := u.Text(); err != nil { // a value that is unsafe in a unit is also unsafe in a shell script
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
	if strings.Contains(command+user, "{{") { // kardianos/service would parse it as a template
		return "", fmt.Errorf("a path or the user name contains {{, which is not allowed in a service: rename the " +
			"folder or use another user")
	}
	return strings.NewReplacer("@Program@", html.EscapeString(u.Program), "@Command@", command,
		"@User@", user).Replace(launchdTemplate), nil
}

// renderWindows returns a description of the service to register, because Windows has no service files.
func renderWindows(u systemd.Unit) (string, error) {
	user := u.User
	if user == "" {
		user = "LocalSystem"
	}
	return fmt.Sprintf("service:  %s (%s)\ncommand:  %q %s\naccount:  %s\nstarts:   with the system, delayed\n"+
		"failure:  restarts after 5s\n",
		u.Program, u.Description, u.Executable, strings.Join(commandArguments(u), " "), user), nil
}

// commandArguments returns the arguments after the program's path.
func commandArguments(u systemd.Unit) []string {
	if u.Config == "" {
		return []string{"run"}
	}
	return []string{"run", "--config", u.Config}
}
