package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a new registry with the metrics of the Go runtime and of the process, and {program}_build_info.
// It does not use client_golang's build info collector, which links text/template and adds megabytes to the binary.
func NewRegistry(program string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info, _ := debug.ReadBuildInfo()
	version, revision := buildVersionOf(info)
	Registrar{Reg: reg, Namespace: program}.
		NewGaugeVec("build_info",
			"Always 1. The labels are the program's version, its commit and the Go release.",
			"version", "revision", "goversion").
		WithLabelValues(version, revision, runtime.Version()).Set(1)
	return reg
}

// DualRegisterer registers metrics in two registries: the registry of the process, with the metrics of all federations
// of a device, and the registry of one federation, for its reports.
type DualRegisterer struct {
	prometheus.Registerer
	SecondRegisterer prometheus.Registerer
}

// MustRegister implements prometheus.Registerer.
func (b DualRegisterer) MustRegister(all ...prometheus.Collector) {
	b.Registerer.MustRegister(all...)
	b.SecondRegisterer.MustRegister(all...)
}

func buildVersionOf(info *debug.BuildInfo) (version, revision string) {
	version, revision = "unknown", "unknown"
	if info == nil {
		return version, revision
	}
	if info.Main.Version != "" {
		version = info.Main.Version
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		revision += "-dirty"
	}
	return version, revision
}
