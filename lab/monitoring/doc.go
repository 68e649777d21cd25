// Package monitoring checks the shipped Grafana dashboards and Prometheus rules. It compares them with the metrics that
// the programs export, and runs their queries on a running Prometheus.
package monitoring
