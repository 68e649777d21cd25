// Package api is the HTTP API of a daemon. It serves JSON over a socket in the state folder, and over TCP if a token is
// configured. The daemon's commands and other programs use it. The OpenAPI document is generated from the routes.
package api
