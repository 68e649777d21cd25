// Package status renders the status page of a daemon as text, and fetches the page over the socket in the daemon's
// state folder. The contents of the page are defined in packages agentstatus and coordinatorstatus.
package status
