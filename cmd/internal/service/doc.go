// Package service makes a program of ours a service of its system: systemd,
// OpenRC, launchd, or Windows. It stands on kardianos/service, which writes the
// file and speaks to the service manager, and mends what was found wanting
// there:
//
//   - The text is ours, rendered and checked before anything is touched; on
//     systemd it is the very unit of the packages (packaging/systemd). Theirs runs as root, unconfined.
//   - The user, the program, the configuration and the files that it names are
//     looked at first; theirs installs what can never start.
//   - What a failed installation leaves is removed. Theirs leaves an empty unit,
//     over which it then refuses to install.
//   - A unit of a package is never shadowed by one in /etc.
//   - Removing stops first; theirs leaves the process running.
//   - The status is systemd's own. Theirs calls a service that fails every five
//     seconds running.
//   - A start that fails says why. Theirs says "exit status 1".
//
// Other service managers are refused by name: what theirs does for them runs as
// root and is not started again after a crash.
package service
