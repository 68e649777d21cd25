// Package monitoring embeds the shipped files for Prometheus and Grafana, so that tests can compare them with the
// metrics that the programs export.
package monitoring

import "embed"

// Files contains the shipped monitoring files: Prometheus configuration, alert rules with tests, runbooks, and Grafana
// dashboards.
//
//go:embed prometheus.yml rules tests runbooks grafana
var Files embed.FS
