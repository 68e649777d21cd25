// Package machine boots Debian with a real systemd as its first process, in a
// container of systemd-nspawn, for tests of what is installed: services,
// packages. It needs root, systemd-nspawn, nsenter and mmdebstrap (Debian:
// systemd-container, util-linux, mmdebstrap), and a mirror of Debian the first
// time, when it builds the file system and keeps it in the user's cache.
//
// A container shares the kernel and nothing else: it has a network of its own
// with loopback only, and what it writes is in memory and gone with it. It cannot
// show limits of cgroups, or another processor.
//
// The tests are behind the build tag "machine": make test-install runs them,
// and so does make test. Behind the tag "vm" are those that boot the same
// Debian with a kernel of its own, on emulated processors: make
// test-install-vm.
package machine
