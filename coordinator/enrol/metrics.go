package enrol

import "github.com/fedmesh/fedmesh/observe"

// Metrics lists the metrics of the enrolment events.
var Metrics = []*observe.Metric{joinedDevices, refusedJoins, openTokenExists, renewedCredentials, refusedRenewals}
