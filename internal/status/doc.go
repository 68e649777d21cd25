// Package status draws the status page of a daemon as text, and fetches it over the socket in the daemon's state
// folder. What is on the page is in agentstatus and coordinatorstatus.
package status
