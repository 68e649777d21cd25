package coordinatorstatus

import (
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/internal/api"
)

// minDevicesForHealth is the minimum number of devices in a figure of the data health. Smaller numbers could identify a
// device.
const minDevicesForHealth = 5

// DataHealth summarises the data of all devices that have reported.
type DataHealth struct {
	ReportingDevices int `json:"devices"`
	// Inputs contains the inputs that are unhealthy on at least five devices, by name.
	Inputs []InputHealth `json:"inputs"`
	// HiddenInputs is the number of inputs that are unhealthy on fewer than five devices.
	HiddenInputs int `json:"hidden"`
}

// InputHealth summarises one input over the devices that have reported. The shares are means over these devices, each
// with equal weight.
type InputHealth struct {
	Name             string  `json:"name"`
	UnhealthyDevices int     `json:"unhealthy"` // number of devices with unused values of the input
	MissingShare     float64 `json:"missing"`   // share of missing values
	WrongShare       float64 `json:"wrong"`     // share of values that are not valid, such as texts or values out of range
	FrozenShare      float64 `json:"frozen"`    // share of values of a sensor that has stopped changing
}

// DataHealthRoute returns the API route that serves the data health.
func (v *StatusTracker) DataHealthRoute() api.Route {
	return api.GetRoute("/v1/data-health",
		"Return how many values of each input are missing, wrong or frozen, over all devices.",
		func(*http.Request) (DataHealth, error) { return v.dataHealth(), nil })
}

func (v *StatusTracker) dataHealth() DataHealth {
	v.mu.Lock()
	defer v.mu.Unlock()
	health := DataHealth{Inputs: []InputHealth{}}
	byName := map[string]*InputHealth{}
	for _, d := range v.deviceByID {
		if !d.hasReported {
			continue
		}
		health.ReportingDevices++
		for _, in := range d.unhealthyInputs {
			h := byName[in.Name]
			if h == nil {
				h = &InputHealth{Name: in.Name}
				byName[in.Name] = h
			}
			h.UnhealthyDevices++
			h.MissingShare += float64(in.Missing) / math.MaxUint16
			h.WrongShare += float64(in.Wrong) / math.MaxUint16
			h.FrozenShare += float64(in.Frozen) / math.MaxUint16
		}
	}
	n := float64(health.ReportingDevices)
	for _, h := range byName {
		if h.UnhealthyDevices < minDevicesForHealth {
			health.HiddenInputs++
			continue
		}
		health.Inputs = append(health.Inputs, InputHealth{h.Name, h.UnhealthyDevices, h.MissingShare / n,
			h.WrongShare / n, h.FrozenShare / n})
	}
	slices.SortFunc(health.Inputs, func(a, b InputHealth) int { return strings.Compare(a.Name, b.Name) })
	return health
}
