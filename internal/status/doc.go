// Package status renders the status page of a daemon as text and fetches it over the socket in the daemon's state
// folder. The contents of the page are in packages agentstatus and coordinatorstatus.
package status
