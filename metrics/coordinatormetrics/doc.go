// Package coordinatormetrics converts the events of the coordinator to the coordinator_* metrics, and aggregates the
// reports of the agents into coordinator_fleet_*.
package coordinatormetrics
