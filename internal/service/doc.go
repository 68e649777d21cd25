// Package service makes one of our programs a service of its system: systemd, OpenRC, launchd, or Windows. It uses
// kardianos/service, which writes the file and talks to the service manager, and corrects these shortcomings of it:
//
//   - Its services run as root, unconfined. Ours have a text of their own, rendered and checked before anything is
//     changed; on systemd it is the unit of the packages (packaging/systemd).
//   - It installs services that can never start. Here the user, the program, the configuration and the files that it
//     names are checked first.
//   - After a failure it leaves an empty unit and then refuses to install over it. Here the remains are removed.
//   - It shadows a package's unit with one in /etc. Here that is refused.
//   - It removes a service without stopping the process. Here the service is stopped first.
//   - It reports a service that fails every five seconds as running. Here the status is systemd's.
//   - It reports a failed start as "exit status 1". Here the error holds the program's last log line.
//
// Other service managers are refused by name: under kardianos/service they run the program as root and do not restart
// it after a crash.
package service
