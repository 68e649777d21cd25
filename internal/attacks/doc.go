// Package attacks contains only tests, each of which attempts an attack on a federation. TestTable checks that the list
// of attacks matches the tests and docs/SECURITY.md. `make attacks` runs all tests and updates that page.
package attacks
