// Package service installs our programs as services of the system: systemd, OpenRC, launchd, or Windows. It uses
// kardianos/service, which writes the service file and calls the service manager, and corrects these shortcomings of
// it:
//
//   - It runs services as root without restrictions. Our service files are rendered and checked before anything is
//     changed. On systemd they are the packages' units (packaging/systemd).
//   - It installs services that can never start. Here the user, the program, the configuration and the files named in
//     it are checked first.
//   - After a failure it leaves an empty unit and then refuses to install over it. Here the remains are removed.
//   - It shadows a package's unit with one in /etc. Here that is refused.
//   - It removes a service without stopping the process. Here the service is stopped first.
//   - It reports a service that fails every five seconds as running. Here the status is systemd's.
//   - It reports a failed start as "exit status 1". Here the error contains the program's last log line.
//
// Other service managers are rejected by name: with them, kardianos/service runs the program as root and does not
// restart it after a crash.
package service
