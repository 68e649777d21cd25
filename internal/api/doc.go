// Package api is the HTTP interface of a daemon: JSON over a socket in its state folder, and over TCP where a token is
// configured. The commands of the daemon use it, and so may other programs. Routes describe themselves, so that the
// OpenAPI document is made of them.
package api
