// Package archtest holds the tests that keep the shape of the house, as docs/ARCHITECTURE.md describes it:
//
//   - floors: a package imports only from the floors below its own (rules_test.go is the plan of the house);
//   - purity: the protocol machines and the mathematics read no clock, start no goroutine and do no I/O;
//   - linking: what agentd must not carry to a device;
//   - words: every package has a package comment, and every package and dependency is named in the architecture page,
//     whose names of files and tests are right.
//
// The package has tests only; nothing imports it. Each checker is a function from parsed sources to a list of
// complaints, and is fed bad sources too, so that every rule is seen red on every run.
package archtest
