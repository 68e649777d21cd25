package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with metrics of the Go runtime and the process, and {program}_build_info. It avoids
// client_golang's build info collector, which adds megabytes to the binary.
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

// DualRegisterer registers each metric in two registries. One contains the metrics of all federations on a device, and
// the other only one federation's metrics for its reports.
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
