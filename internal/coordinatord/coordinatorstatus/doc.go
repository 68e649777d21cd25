// Package coordinatorstatus keeps the status page of the coordinator and the table of its devices.
package coordinatorstatus
