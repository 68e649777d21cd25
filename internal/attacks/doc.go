// Package attacks lists what somebody may try against a federation, and the tests that try it. It has only tests:
// TestTable holds the list against docs/SECURITY.md and the tests' names, and `make attacks` runs all of them and
// writes the table there.
package attacks
