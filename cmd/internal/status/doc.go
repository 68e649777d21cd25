// Package status shows a person where a daemon stands: it follows the facts,
// keeps a picture of them, hands it out over a local socket in the state folder,
// and draws it.
package status
