// Package metrics has what the metrics of both programs share: how a metric is registered, which readings an agent
// reports to the coordinator, and the HTTP endpoints. EventMetrics keeps the metrics that events describe; agentmetrics
// and coordinatormetrics register them:
//
//	registry := metrics.NewRegistry("agentd")
//	agent := agentmetrics.New(registry, time.Now, "")
//	agent.Events.Apply(description.Samples) // of each event
//	server, err := metrics.StartServer("127.0.0.1:9464", metrics.Handler(registry, ready))
//
// Each label has a closed set of values, and each of its series exists from the start with the value 0. No label names
// an agent, so the number of series does not depend on the size of the fleet. A gauge whose value is not known has no
// series. docs/METRICS.md lists all metrics; a test writes and checks it.
package metrics
