// Package metrics contains the common parts of both programs' metrics: registration, the metrics that an agent reports
// to the coordinator, and the HTTP endpoints. EventMetrics maintains the metrics that events describe. Packages
// agentmetrics and coordinatormetrics register them:
//
//	registry := metrics.NewRegistry("agentd")
//	agent := agentmetrics.New(registry, time.Now, "")
//	agent.Events.ApplySamples(description.MetricSamples) // for each event
//	server, err := metrics.StartServer("127.0.0.1:9464", metrics.Handler(registry, ready))
//
// Each label has a fixed set of values, and each of its series exists from the start with the value 0. No label
// contains an agent id, so the number of series does not depend on the size of the fleet. A gauge with an unknown value
// has no series. docs/METRICS.md lists all metrics; a test generates and checks it.
package metrics
