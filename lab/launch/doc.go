// Package launch starts federations of the real programs on this machine: as processes, and with package daemons in
// this process. It writes the directory of a federation, finds free ports, waits for services and collects logs.
package launch
