// Package service installs our programs as services of the operating system, with systemd, OpenRC, launchd or Windows.
// It uses the library kardianos/service, which writes the service file and calls the service manager. Package service
// corrects these shortcomings of the library:
//
//   - The library runs services as root without restrictions. Package service renders its own service files, with a
//     user and restrictions, and checks them before it changes anything. On systemd, they equal the units of our
//     distribution packages (packaging/systemd).
//   - The library installs services that can never start. Package service first checks the user, the program, the
//     configuration, and the files that the configuration names.
//   - After a failure, the library leaves an empty unit and then refuses to install over it. Package service removes
//     the remains.
//   - The library hides the unit of a distribution package by writing a unit to /etc. Package service refuses this.
//   - The library removes a service without stopping the process. Package service stops the service first.
//   - The library reports a service that fails every five seconds as running. Package service reports systemd's status.
//   - The library reports a failed start as "exit status 1". Package service adds the last log line of the program.
//
// Package service rejects other service managers by name, because kardianos/service would run the program as root there
// and would not restart it after a crash.
package service
