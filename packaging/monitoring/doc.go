// Package monitoring holds what we ship for Prometheus and Grafana. It embeds
// the files, so that a test can hold them against the programs' metrics.
package monitoring

import "embed"

// Files are the Prometheus configuration, rules, tests of rules, runbooks,
// dashboards and Grafana's provisioning.
//
//go:embed prometheus.yml rules tests runbooks grafana
var Files embed.FS
