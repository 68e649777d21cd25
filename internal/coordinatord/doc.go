// Package coordinatord implements the coordinator program on top of package coordinator, which executes a single run.
// It starts consecutive runs, applies new tasks, enrols devices and handles the failover between replicas.
package coordinatord
