// Package console serves a daemon's web console: a page for the browser, the HTTP API that the page uses, and a feed
// that keeps open pages up to date. It knows nothing of rounds or devices; see [Content].
package console
