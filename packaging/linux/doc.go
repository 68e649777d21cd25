// Package linux holds what the packages for Linux bring beside the programs:
// scripts that run at installation and removal, the environment of the services
// and the user that they run as. tools/package fills in the name of the program
// for @NAME@, and in capitals for @UPPER@. The unit is in packaging/systemd.
//
// How the Debian packages live on a real systemd is tested in internal/machine.
package linux
