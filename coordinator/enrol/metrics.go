package enrol

import "github.com/fedmesh/fedmesh/observe"

// Metrics are the metrics of the events of enrolment.
var Metrics = []*observe.Metric{joinedDevices, refusedJoins, openTokenExists, renewedCredentials, refusedRenewals}
