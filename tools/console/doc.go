// Package console tests the web console in a real browser, with the finished programs and a real broker.
package console
