package setup

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/packaging"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

func plant() *Answers {
	return &Answers{FederationName: "air", BrokerURL: "tls://broker.example:8883", Features: []string{"pm25",
		"temperature",
		"humidity", "wind"}, Target: "pm25_in_6h", Model: spec.ModelLinear, Algorithm: spec.FedAvg, DeviceCount: 6}
}

// TestSampleIsFounded checks that the shipped sample is the configuration for six devices, with marks on the lines that
// an operator sets.
func TestSampleIsFounded(t *testing.T) {
	got := string(config.FillSampleConfig(packaging.CoordinatorConfig, plant().coordinatorConfigValues()))
	want := strings.Split(string(packaging.CoordinatorConfig), "\n")
	for i, line := range strings.Split(got, "\n") {
		// the first lines explain the marks
		if is := strings.Replace(want[i], "# (yours) ", "# ", 1); i > 10 && line != is {
			t.Errorf("line %d is\n%s\nin the sample\n%s", i+1, line, is)
		}
	}
}

// TestModelKinds checks that every kind with a target can be chosen, except conv1d, whose shape no answer gives.
func TestModelKinds(t *testing.T) {
	for _, kind := range spec.ModelKinds() {
		want := kind.HasTarget() && kind != spec.ModelConv1D
		if got := slices.Contains(ModelKinds(), string(kind)); got != want {
			t.Errorf("%s can be chosen: %v, want %v", kind, got, want)
		}
	}
}

// TestWrite checks that each kind of federation is valid once its devices are in the list.
func TestWrite(t *testing.T) {
	for _, kind := range spec.ModelKinds() {
		if kind == spec.ModelConv1D {
			continue // no answer gives its shape, and Validate reports it: see TestInit of cmd/coordinator
		}
		for _, algorithm := range []spec.Algorithm{spec.FedAvg, spec.FedDec} {
			for _, agents := range []int{1, 3, 5, 200} {
				a := plant()
				a.Model, a.Algorithm, a.DeviceCount = kind, algorithm, agents
				if !kind.HasTarget() {
					a.Target = ""
				}
				if kind == spec.ModelSoftmax || kind == spec.ModelMLP {
					a.ClassCount = 3
				}
				f, err := WriteFederation(filepath.Join(t.TempDir(), "new"), a, &CSVSample{}, false)
				if err != nil {
					t.Fatal(err)
				}
				check(t, f, a)
			}
		}
	}
}

// check loads the files in the same way as the programs.
func check(t *testing.T, f FederationFiles, a *Answers) {
	t.Helper()
	list, err := os.ReadFile(f.AgentList)
	if err != nil {
		t.Fatal(err)
	}
	device := filepath.Join(t.TempDir(), "agent.key")
	for range a.DeviceCount {
		key, err := keys.CreateSigningKeyFile(device)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, "d"+strings.ToLower(strings.NewReplacer("/", "", "+", "", "=", "").Replace(
			keys.FormatPublic(keys.Public(key))))[:30]+" "+keys.FormatPublic(keys.Public(key))+"\n"...)
		if err := os.Remove(device); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(f.AgentList, list, 0o600); err != nil {
		t.Fatal(err)
	}
	lead := coordinatorsettings.Default()
	if err := settings.Load(&lead, "coordinator", f.CoordinatorConfig, nil); err != nil {
		t.Errorf("%+v: %v", a, err)
	}
	if _, err := keys.CreateSigningKeyFile(device); err != nil {
		t.Fatal(err)
	}
	agent := settings.DefaultAgent()
	own := map[string]string{"identity.key_file": device}
	err = settings.Load(&agent, "agentd", f.AgentConfig, own)
	if err == nil || !strings.Contains(err.Error(), "id: ") || !strings.Contains(err.Error(), "data.csv: no file is "+
		"set") {
		t.Errorf("%+v: without an id and data: %v", a, err)
	}
	own["id"], own["data.csv"] = "device-1", "rows.csv"
	agent = settings.DefaultAgent()
	if err := settings.Load(&agent, "agentd", f.AgentConfig, own); err != nil {
		t.Errorf("%+v: %v", a, err)
	}
	if lead.Round.MaxAggregations == 0 || lead.Round.Stop.Patience == 0 || lead.Round.PauseBetweenRounds == 0 {
		t.Errorf("%+v: the run never rests", a)
	}
}

// TestWriteKeeps checks that files are replaced only with force, and that the key and the list of devices are always
// kept.
func TestWriteKeeps(t *testing.T) {
	dir := t.TempDir()
	bench := plant()
	bench.BrokerURL = "tcp://127.0.0.1:1883"
	f, err := WriteFederation(dir, bench, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, path := range []string{f.CoordinatorKey, f.AgentList} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before[path] = string(text)
	}
	other := *bench
	other.FederationName = "other"
	if _, err := WriteFederation(dir, &other, nil, false); err == nil || !strings.Contains(err.Error(),
		"already exists") {
		t.Errorf("written twice: %v", err)
	}
	if _, err := WriteFederation(dir, &other, nil, true); err != nil {
		t.Fatal(err)
	}
	for path, text := range before {
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s was replaced: %v", path, err)
		}
	}
	if text, err := os.ReadFile(f.AgentConfig); err != nil || !strings.Contains(string(text), "\nfederation: other ") {
		t.Errorf("force does not replace %s: %v", f.AgentConfig, err)
	}
}

// TestSample checks the columns and the kind of task derived from a file.
func TestSample(t *testing.T) {
	for name, tt := range map[string]struct {
		csv     string
		numbers []string
		kind    spec.ModelKind
		classes int
		agent   string // keys of agentd.yaml that the file requires
	}{
		"number":  {"site,a,b,y\ns1,1,2,3.5\ns1,2,3,4\n", []string{"a", "b", "y"}, spec.ModelLinear, 0, ""},
		"count":   {"a,y\n1,0\n2,1\n3,7\n", []string{"a", "y"}, spec.ModelLinear, 0, ""},
		"two":     {"a,y\n1,0\n2,1\n3,1\n", []string{"a", "y"}, spec.ModelLogistic, 2, ""},
		"classes": {"a,y\n1,0\n2,1\n3,2\n4,2\n", []string{"a", "y"}, spec.ModelSoftmax, 3, ""},
		"comma": {"a;b;y\n1,5;2;3,5\n2,5;3;4,5\n", []string{"a", "b", "y"}, spec.ModelLinear, 0,
			"\n  delimiter: \";\""},
		"seconds": {"time,a,y\n1772366400,1,2.5\n1772366460,2,3\n", []string{"a", "y"}, spec.ModelLinear, 0,
			"\n  time: time"},
		"local times": {"a;Messung;y\n1;01.03.2026 12:00:00;2.5\n2;13.03.2026 12:00:00;3\n", []string{"a", "y"},
			spec.ModelLinear, 0, "\n  time: Messung"},
		"a format": {"a;Messung;y\n1;01.03.2026 12:00:00;2.5\n2;13.03.2026 12:00:00;3\n", []string{"a", "y"},
			spec.ModelLinear, 0, "\n  time_format: \"02.01.2006 15:04:05\""},
		"two times": {"time,date,a,y\n1772366400,2026-03-01T12:00:00Z,1,2.5\n1772366460,2026-03-01T12:01:00Z,2,3\n",
			[]string{"a", "y"}, spec.ModelLinear, 0, "\n  time: date"},
		"not in order": {"time,a,y\n1772366460,1,2.5\n1772366400,2,3\n", []string{"a", "y"}, spec.ModelLinear, 0,
			"\n  time: \"\""},
		"hours of operation": {"time,a,y\n1,1,2.5\n2,2,3\n", []string{"time", "a", "y"}, spec.ModelLinear, 0,
			"\n  time: \"\""},
		"a large number": {"energy,a,y\n1772366400,1,2.5\n1772366460,2,3\n", []string{"energy", "a", "y"},
			spec.ModelLinear, 0, "\n  time: \"\""},
	} {
		path := filepath.Join(t.TempDir(), "sample.csv")
		if err := os.WriteFile(path, []byte(tt.csv), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSample(path)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := s.ResolveFeatureColumns("", []string{s.TimeColumn}); s.TimeColumn != "" && (err == nil ||
			!strings.Contains(err.Error(), "contains texts or times")) {
			t.Errorf("%s: the times as a feature: %v", name, err)
		}
		all, err := s.ResolveFeatureColumns("", nil)
		if err != nil || !slices.Equal(all, s.NumericColumns) {
			t.Errorf("%s: without a target the features are %v, %v", name, all, err)
		}
		target := s.NumericColumns[len(s.NumericColumns)-1]
		features, err := s.ResolveFeatureColumns(target, nil)
		if err != nil {
			t.Fatal(name, err)
		}
		kind, classes, err := s.GuessModelKind(target, features)
		if !slices.Equal(s.NumericColumns, tt.numbers) || target != "y" || kind != tt.kind || classes != tt.classes ||
			err != nil {
			t.Errorf("%s: columns %v, target %s, %s of %d classes, %v", name, s.NumericColumns, target, kind, classes,
				err)
		}
		f, err := WriteFederation(t.TempDir(), plant(), s, false)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(f.AgentConfig); err != nil || !strings.Contains(string(text), tt.agent) {
			t.Errorf("%s: agentd.yaml has no %q: %v", name, tt.agent, err)
		}
	}
}

// TestSampleRefused checks that each error names the file and a remedy.
func TestSampleRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sample.csv")
	if _, err := ReadSample(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("site,power\nx,1\ny,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSample(path); err == nil ||
		!strings.Contains(err.Error(), "needs at least one input column and one target column") {
		t.Errorf("one column of numbers: %v", err)
	}
	if err := os.WriteFile(path, []byte("site,heat,power\nx,1,2\ny,2,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := ReadSample(path)
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{"site": "the column site contains texts or times",
		"powr":    `did you mean "power"?`,
		"nothing": "the numeric columns are heat, power"} {
		if _, err := s.ResolveFeatureColumns(target, []string{"heat"}); err == nil || !strings.Contains(err.Error(),
			want) {
			t.Errorf("target %s: %v; want %q", target, err, want)
		}
	}
}

// TestTrust checks that the files of `init` for a broker over TLS match each other and are not replaced. An interrupted
// `init` must be continued.
func TestTrust(t *testing.T) {
	dir := t.TempDir()
	f, err := WriteFederation(dir, plant(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	lead := coordinatorsettings.Default()
	if err := settings.Load(&lead, "coordinator", f.CoordinatorConfig, nil); err != nil {
		t.Fatal(err)
	}
	cfg, err := lead.EnrolmentConfig()
	if err != nil {
		t.Fatal(err)
	}
	want := []wire.AgentSetting{{Name: "broker.url", Value: "tls://broker.example:8883"}}
	if !slices.Equal(cfg.SharedDeviceSettings, want) {
		t.Errorf("devices share %v, want %v", cfg.SharedDeviceSettings, want)
	}
	if lead.Enrolment.JoinURL != "https://broker.example:8884" || lead.Enrolment.Listen != ":8884" {
		t.Errorf("devices join at %s, %s", lead.Enrolment.JoinURL, lead.Enrolment.Listen)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.MosquittoDir, "certs", "broker.crt"),
		filepath.Join(f.MosquittoDir, "certs", "broker.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cfg.CertificateAuthority.Certificate)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "broker.example", CurrentTime: time.Unix(9, 0)})
	if err != nil {
		t.Errorf("the broker's certificate, where a clock begins in 1970: %v", err)
	}
	kept := map[string][]byte{}
	for _, name := range []string{"root", "root.key", "ca.key", "ca.crt", "client.key", "client.crt"} {
		if kept[name], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || strings.HasSuffix(name, ".key") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "client.crt")); err != nil { // as if `init` had been killed before this step
		t.Fatal(err)
	}
	if err := os.Remove(f.RootKey); err != nil { // the root key was moved to another machine
		t.Fatal(err)
	}
	if _, err := WriteFederation(dir, plant(), nil, true); err != nil {
		t.Fatal(err)
	}
	for name, before := range kept {
		now, err := os.ReadFile(filepath.Join(dir, name))
		switch {
		case name == "root.key" && err == nil:
			t.Error("a second root key was made")
		case name == "root.key", name == "client.crt":
		case err != nil || !bytes.Equal(now, before):
			t.Errorf("%s was replaced: %v", name, err)
		}
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")); err != nil {
		t.Error(err)
	}
	other := plant()
	other.FederationName = "other"
	if _, err := WriteFederation(dir, other, nil, true); err == nil || !strings.Contains(err.Error(),
		"of the federation air") {
		t.Errorf("another federation in the folder: %v", err)
	}
	key, err := keys.CreateSigningKeyFile(filepath.Join(dir, "new.key"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.createRootDocument(filepath.Join(dir, "root"), plant(), cfg.CertificateAuthority, key); err == nil {
		t.Error("a root document of another coordinator's key counts")
	}
}

// TestListenerPort checks that the broker's configuration has the port of its URL.
func TestListenerPort(t *testing.T) {
	for broker, want := range map[string]string{"mqtts://gw:28883": "\nlistener 28883\n",
		"tls://gw:8883": "\nlistener 8883\n"} {
		if conf := string((&Answers{BrokerURL: broker}).mosquittoConf()); !strings.Contains(conf, want) ||
			strings.Count(conf, "\nlistener ") != 1 {
			t.Errorf("%s: no %q", broker, want)
		}
	}
}
