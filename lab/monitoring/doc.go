// Package monitoring checks the dashboards and rules that we ship: by the
// metrics that the programs export, and with a live Prometheus.
package monitoring
