// Package monitoring holds the dashboards and rules that we ship against the
// metrics that the programs export, and against a live Prometheus.
package monitoring
