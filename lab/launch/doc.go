// Package launch runs federations of the real programs on the local machine. It writes the configuration files, finds
// free ports, starts processes, waits for services and collects logs. Its subpackage daemons runs the programs inside
// the current process.
package launch
