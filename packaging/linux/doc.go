// Package linux contains files for the Linux packages: installation and removal scripts, environment files of the
// services, and the definitions of the service users. tools/package replaces the placeholder @NAME@ by the program's
// name and @UPPER@ by the name in upper case. The systemd units are in packaging/systemd.
//
// Tests that install the Debian packages on a real systemd are in internal/testkit/machine.
package linux
