package service

import (
	_ "embed" // needed for the directive go:embed
	"fmt"
	"html"
	"strings"

	"github.com/fedmesh/fedmesh/packaging/systemd"
)

// serviceManager describes how services are installed with one kind of service manager, such as systemd.
type serviceManager struct {
	// path of a service file, with %s for the name of the service; empty if the manager uses no service files
	filePathFormat    string
	renderServiceFile func(u systemd.Unit) (string, error)
	unitTextOption    string // name of the kardianos/service option that sets the text of the service file
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
	if _, err := u.Text(); err != nil { // a value that is unsafe in a systemd unit is also unsafe in a shell script
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
	// kardianos/service would parse "{{" as the beginning of a template action
	if strings.Contains(command+user, "{{") {
		return "", fmt.Errorf("a path or the user name contains {{, which is not allowed in a service: rename the " +
			"folder or use another user")
	}
	return strings.NewReplacer("@Program@", html.EscapeString(u.Program), "@Command@", command,
		"@User@", user).Replace(launchdTemplate), nil
}

// renderWindows returns a textual description of the service, because Windows has no service files.
func renderWindows(u systemd.Unit) (string, error) {
	user := u.User
	if user == "" {
		user = "LocalSystem"
	}
	return fmt.Sprintf("service:  %s (%s)\ncommand:  %q %s\naccount:  %s\nstarts:   with the system, delayed\n"+
		"failure:  restarts after 5s\n",
		u.Program, u.Description, u.Executable, strings.Join(commandArguments(u), " "), user), nil
}

// commandArguments returns the command-line arguments of the service, without the path of the program.
func commandArguments(u systemd.Unit) []string {
	if u.Config == "" {
		return []string{"run"}
	}
	return []string{"run", "--config", u.Config}
}
