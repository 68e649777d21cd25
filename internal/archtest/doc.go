// Package archtest contains tests of the architecture that docs/ARCHITECTURE.md describes:
//
//   - floors: a package imports only packages on lower floors (rules_test.go assigns the floors);
//   - purity: the protocol machines and the mathematics read no clock, start no goroutine and do no I/O;
//   - linking: agentd does not link packages that a device must not carry;
//   - documentation: every package has a package comment, and the architecture page names every package and dependency
//     and only existing files and tests.
//
// The package contains tests only. Each checker is a function that turns parsed sources into a list of complaints. Each
// checker is also tested with invalid sources, to prove that it can detect violations of the rule.
package archtest
