// Package linux contains files for the Linux packages: installation and removal scripts, environment files for the
// services, and definitions of the service users. tools/package replaces the placeholder @NAME@ by the name of the
// program, and @UPPER@ by the name in upper case. The systemd units are in packaging/systemd.
//
// Tests that install the Debian packages on a machine with systemd are in internal/testkit/machine.
package linux
