// Package coordinatorstatus maintains the status page of the coordinator and the table of its devices.
package coordinatorstatus
