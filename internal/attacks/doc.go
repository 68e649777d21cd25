// Package attacks lists attacks on a federation, and the tests that try them. It contains tests only: TestTable
// compares the list with docs/SECURITY.md and with the names of the tests. `make attacks` runs all listed tests and
// writes the table into the page.
package attacks
