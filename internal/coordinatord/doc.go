// Package coordinatord runs the coordinator program: consecutive runs of a federation, tasks applied by commands, the
// enrolment of devices, and the failover between replicas. Package coordinator is the host of a single run.
package coordinatord
