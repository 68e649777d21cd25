package agent

import (
	"slices"

	"github.com/fedmesh/fedmesh/agent/announcement"
	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/device"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/predict"
	"github.com/fedmesh/fedmesh/agent/presence"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/observe"
)

// Metrics contains all metrics of the agent.
var Metrics = slices.Concat([]*observe.Metric{
	DroppedMessages,
	modelVersion, modelBytes, modelFetches,
}, state.Metrics, announcement.Metrics, presence.Metrics, identity.Metrics, budget.Metrics,
	device.Metrics, fetch.Metrics, taskdata.Metrics, predict.Metrics,
	mesh.Metrics, training.Metrics, upload.Metrics)
