// Package coordinatormetrics turns the events of the coordinator into the metrics coordinator_*, and aggregates the
// reports of the agents into coordinator_fleet_*.
package coordinatormetrics
