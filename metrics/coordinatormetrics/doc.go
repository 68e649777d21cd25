// Package coordinatormetrics updates the coordinator_* metrics from events of the coordinator. It also aggregates the
// agents' reports into coordinator_fleet_* metrics.
package coordinatormetrics
