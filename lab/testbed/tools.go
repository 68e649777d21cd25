package testbed

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fedmesh/fedmesh/lab/launch"
	"github.com/fedmesh/fedmesh/packaging/monitoring"
)

// tools holds the installed third-party programs that a testbed uses.
type tools struct {
	mosquitto, prometheus, nats string // paths of the programs; "" if not installed

	grafana []string // command that starts Grafana with the path of its own files; nil if not installed
}

func findTools() *tools {
	var t tools
	t.mosquitto, _ = launch.FindProgram("mosquitto")
	t.prometheus, _ = launch.FindProgram("prometheus")
	t.nats, _ = launch.FindProgram("nats-server")
	const home = "/usr/share/grafana" // folder in which the Grafana packages install their files
	if path, err := launch.FindProgram("grafana"); err == nil {
		t.grafana = []string{path, "server", "--homepath", home}
	} else if path, err := launch.FindProgram("grafana-server"); err == nil {
		t.grafana = []string{path, "--homepath", home}
	}
	return &t
}

// programs returns the folder of agentd and coordinator. If dir is empty, this is the folder of the running program.
func programs(dir string) (string, error) {
	if dir == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		dir = filepath.Dir(self)
	}
	for _, name := range []string{"agentd", "coordinator"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf(
				"program %s not found in %s: build it with `make build` and set --bin to its folder",
				name, dir)
		}
	}
	return filepath.Abs(dir)
}

// writeGrafana writes the dashboards and the shipped provisioning, adapted to the testbed's Prometheus address.
func (b *bed) writeGrafana() error {
	files, err := monitoring.Files.ReadDir("grafana/dashboards")
	if err != nil {
		return err
	}
	for _, f := range files {
		var text []byte
		if text, err = monitoring.Files.ReadFile("grafana/dashboards/" + f.Name()); err == nil {
			err = b.Put("grafana/dashboards/"+f.Name(), text)
		}
		if err != nil {
			return err
		}
	}
	here := strings.NewReplacer("/var/lib/grafana/dashboards/fedmesh", b.Path("grafana/dashboards"),
		"127.0.0.1:9090", b.prometheus, "timeInterval: 15s", "timeInterval: 2s")
	for _, name := range []string{"dashboards", "datasources"} {
		path := "grafana/provisioning/" + name + "/fedmesh.yml"
		text, err := monitoring.Files.ReadFile(path)
		if err := firstOf(err, b.Put(path, []byte(here.Replace(string(text))))); err != nil {
			return err
		}
	}
	return err
}

// startGrafana starts Grafana with the shipped dashboards. Users on this machine can view them without login.
func (b *bed) startGrafana() error {
	host, port, err := net.SplitHostPort(b.grafana)
	if err != nil {
		return err
	}
	cmd := exec.Command(b.tools.grafana[0], b.tools.grafana[1:]...)
	cmd.Env = append(os.Environ(),
		"GF_SERVER_HTTP_ADDR="+host, "GF_SERVER_HTTP_PORT="+port,
		"GF_PATHS_PROVISIONING="+b.Path("grafana/provisioning"),
		"GF_PATHS_DATA="+b.Path("grafana/data"), "GF_PATHS_LOGS="+b.Path("grafana/logs"),
		"GF_AUTH_ANONYMOUS_ENABLED=true", "GF_ANALYTICS_REPORTING_ENABLED=false",
		"GF_ANALYTICS_CHECK_FOR_UPDATES=false")
	return b.service("grafana", cmd)
}
