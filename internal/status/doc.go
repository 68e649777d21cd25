// Package status shows the state of a daemon to a person. It keeps a picture from the daemon's facts, draws it, and
// serves it over a local socket in the state folder.
package status
