// Package api implements the HTTP API of the daemons, as JSON over a Unix socket in the state folder and, if a token
// file is configured, over TCP. The OpenAPI document is generated from the routes.
package api
