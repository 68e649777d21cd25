// Package machine boots Debian with systemd in a systemd-nspawn container, to test installed services and packages. It
// requires root, systemd-nspawn, nsenter and mmdebstrap (Debian packages systemd-container, util-linux, mmdebstrap). It
// builds the root file system once from a Debian mirror and stores it in the user's cache folder.
//
// A container shares only the kernel with the host. It has a separate network with a loopback interface only, and it
// keeps its writes in memory and discards them at the end. Resource limits and other CPU architectures cannot be tested
// in a container.
//
// The tests have the build tag "machine" and run with make test-install or make test. Tests with the tag "vm" boot the
// same Debian with its own kernel on an emulated CPU and run with make test-install-vm.
package machine
