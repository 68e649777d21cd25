package settings_test

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestSourcesInOrder checks the precedence of the configuration sources, from lowest to highest: defaults, file,
// environment, command line.
func TestSourcesInOrder(t *testing.T) {
	path := writeFile(t, "agentd.yaml", agentFile(t)+"privacy:\n  min_rows: 20\nlog:\n  level: debug\n")
	t.Setenv("AGENTD_PRIVACY_MIN_ROWS", "30")
	t.Setenv("AGENTD_DATA_WHERE", "site=a,year=2024")
	t.Setenv("AGENTD_CONFIG", "elsewhere.yaml") // only the command line reads this variable
	t.Setenv("COORDINATOR_ID", "of another program")
	s := settings.DefaultAgent()
	if err := settings.Load(&s, "agentd", path,
		map[string]string{"privacy.min_rows": "40", "compute.step_time": "2ms"}); err != nil {
		t.Fatal(err)
	}
	if s.Privacy.MinRowsToParticipate != 40 || s.Compute.DeclaredStepTime != 2*time.Millisecond ||
		s.Log.Level != "debug" ||
		s.StateDir != "/var/lib/agentd" {
		t.Errorf("loaded %+v", s)
	}
	if want := map[string]string{"site": "a", "year": "2024"}; !reflect.DeepEqual(s.Data.RequiredTextByColumn, want) {
		t.Errorf("data.where is %v, want %v", s.Data.RequiredTextByColumn, want)
	}
	s = settings.DefaultAgent()
	if err := settings.Load(&s, "agentd", path, nil); err != nil || s.Privacy.MinRowsToParticipate != 30 {
		t.Errorf("privacy.min_rows is %d, error %v; want 30, as the environment says", s.Privacy.MinRowsToParticipate,
			err)
	}
}

func TestSourcesAreNamed(t *testing.T) {
	path := writeFile(t, "agentd.yaml", agentFile(t))
	load := func(set map[string]string) error {
		s := settings.DefaultAgent()
		return settings.Load(&s, "agentd", path, set)
	}
	wantError(t, load(map[string]string{"privacy.min_rows": "0"}),
		"command line: privacy.min_rows: must be at least 1, but is 0")
	wantError(t, load(map[string]string{"privacy.min_row": "1"}),
		`command line: unknown key "privacy.min_row"; did you mean "privacy.min_rows"?`)
	t.Setenv("AGENTD_PRIVACY_MINROWS", "1")
	wantError(t, load(nil),
		`environment AGENTD_PRIVACY_MINROWS: unknown variable; did you mean "AGENTD_PRIVACY_MIN_ROWS"?`)
}

func TestSessionFindsPassword(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mqtt-password"), []byte("of the unit\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := settings.DefaultBroker()
	o, _, err := b.SessionOptions("air-a")
	if err != nil || o.Username != "" || o.Password != "" || o.TLS != nil {
		t.Errorf("without a password: %+v, error %v", o, err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	o, warning, err := b.SessionOptions("air-a")
	if err != nil || warning != "" || o.Username != "air-a" || o.Password != "of the unit" {
		t.Errorf("user %q, password %q, warning %q, error %v; want the client id and the credential", o.Username,
			o.Password, warning, err)
	}
	b.PasswordFile = writeFile(t, "password", "of the file")
	if err := os.Chmod(b.PasswordFile, 0o644); err != nil {
		t.Fatal(err)
	}
	b.Username = "me"
	o, warning, err = b.SessionOptions("air-a")
	if err != nil || warning == "" || o.Username != "me" || o.Password != "of the file" {
		t.Errorf("user %q, password %q, warning %q, error %v; want those of the file, and a warning", o.Username,
			o.Password, warning, err)
	}
}

// TestSessionRenews checks that a session reads its certificate files again at each connection attempt, and that an
// incomplete file causes an error.
func TestSessionRenews(t *testing.T) {
	b := settings.DefaultBroker()
	b.Username, b.PasswordFile, b.CAFile = "me", writeFile(t, "password", "first"), writeCertificate(t)
	o, _, err := b.SessionOptions("air-a")
	if err != nil || o.Password != "first" || o.TLS.MinVersion != tls.VersionTLS13 {
		t.Fatalf("%+v, %v", o, err)
	}
	ca, err := os.ReadFile(writeCertificate(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(b.PasswordFile, []byte("second"), 0o600),
		os.WriteFile(b.CAFile, ca, 0o600)); err != nil {
		t.Fatal(err)
	}
	password, encryption, err := o.RenewCredentials()
	if err != nil || password != "second" || encryption.RootCAs.Equal(o.TLS.RootCAs) {
		t.Errorf("renewed: %q, %+v, %v", password, encryption, err)
	}
	if err := os.WriteFile(b.CAFile, ca[:len(ca)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.RenewCredentials(); err == nil {
		t.Error("half a file is no error")
	}
	b.TLSMin = "1.2"
	if o, _, err := b.SessionOptions("air-a"); err == nil || o.TLS != nil {
		t.Errorf("with half a file: %+v, %v", o.TLS, err)
	}
	b.CAFile = ""
	if o, _, err := b.SessionOptions("air-a"); err != nil || o.TLS.MinVersion != tls.VersionTLS12 {
		t.Errorf("an older broker: %+v, %v", o.TLS, err)
	}
}

func TestAgentConfig(t *testing.T) {
	s := settings.DefaultAgent()
	path := writeFile(t, "agentd.yaml", agentFile(t)+"  where: {site: a}\n  shares: 3\n  share: 1\n")
	if err := settings.Load(&s, "agentd", path,
		map[string]string{"broker.prefix": "my/fed", "state_dir": "x/../y", "limits.max_model": "2MiB"}); err != nil {
		t.Fatal(err)
	}
	c, err := agentconfig.AgentConfigForFederation(&s)
	if err != nil {
		t.Fatal(err)
	}
	if c.Federation != "air" || c.ID != "roof-1" || c.StateDir != "y" || c.MaxBlobBytes != 2<<20 ||
		c.TaskData.MinRows != 10 || c.Training.DeclaredStepTime != 0 {
		t.Errorf("%+v", c)
	}
	if got := c.Topics.Announcement(); got != "my/fed/air/round" {
		t.Errorf("round topic %s", got)
	}
	if d := s.Data; d.Source != data.SourceCSV || d.CSVPath != "rows.csv" || d.RequiredTextByColumn["site"] != "a" ||
		d.ShareIndex != 1 ||
		d.ShareCount != 3 || c.TaskData.Source == nil {
		t.Errorf("data %+v", d)
	}
}

func TestCoordinatorConfig(t *testing.T) {
	s := coordinatorsettings.Default()
	held := writeFile(t, "held.csv", "a,b,y\n1,2,3\n")
	path := writeFile(t, "c.yaml", coordinatorFile(t)+"held_out:\n  csv: "+held+"\npolicy:\n  max_norm: 3\n")
	if err := settings.Load(&s, "coordinator", path, nil); err != nil {
		t.Fatal(err)
	}
	c, err := s.CoordinatorConfig()
	if err != nil {
		t.Fatal(err)
	}
	if c.Round.Gather.MinAgents != 2 || c.MaxUpdateNorm != 3 ||
		c.KeepModels != 20 ||
		c.MaxBufferedUpdateBytes != 256<<20 || !c.Standardize || c.FeatureClipDeviations != 6 ||
		c.HeldOutSource == nil {
		t.Errorf("%+v", c)
	}
	s.StateDir = t.TempDir()
	agents, err := s.OpenAgentList()
	if err != nil {
		t.Fatal(err)
	}
	defer agents.Close()
	if n, counted := s.CountAgents(); n != 2 || counted != nil || agents.Len() != 2 {
		t.Errorf("%d agents, error %v; %d in the open list", n, counted, agents.Len())
	}
	s.HeldOutData = nil
	if c, err = s.CoordinatorConfig(); err != nil || c.HeldOutSource != nil {
		t.Errorf("held-out data %v without any in the settings, error %v", c.HeldOutSource, err)
	}
}

func TestWire(t *testing.T) {
	task := settings.DefaultTask()
	task.Name, task.Features, task.Target = "air", []string{"a", "b"}, "y"
	want := wire.Task{
		Name: "air", Features: []string{"a", "b"}, TargetColumn: "y", MinSamples: 10,
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared, HasBias: true},
		Training: wire.TrainingSettings{
			ExchangeKind: spec.ExchangeParameters, UpdateCodec: spec.CodecRaw,
			GradientNoise: spec.GradientNoise{Law: spec.NoiseNone}, BatchSize: 32,
			LocalStepProbability: 1, StepSize: 0.4, NormalizesStepSize: true, StepTimeBudgetMillis: 10000,
			MinLocalSteps: 1,
			MaxLocalSteps: 100,
		},
	}
	if got := task.ToWireTask(false); !reflect.DeepEqual(got, want) {
		t.Errorf("the default task is\n%+v, want\n%+v", got, want)
	}
	for kind, risk := range map[spec.ModelKind]spec.LossKind{"linear": spec.LossSquared, "logistic": spec.LossLogistic,
		"softmax": spec.LossSoftmax} {
		task.Model.Kind = kind
		if got := task.ToWireTask(false).Model.Risk; got != risk {
			t.Errorf("%s has risk %v, want %v", kind, got, risk)
		}
	}
	task.Model = spec.Model{Kind: "mlp", HiddenUnits: []int{8, 4}, Classes: 3, Risk: "softmax", Activation: "relu",
		Ridge: 0.1}
	task.Exchange, task.StepSampling.StepProbability, task.GradientNoise = spec.ExchangeGradient, 0.5,
		spec.GradientNoise{Law: spec.NoiseLaplace, Variance: 0.25}
	got := task.ToWireTask(false)
	if got.Model.Outputs != 3 || !slices.Equal(got.Model.HiddenUnits, []uint32{8, 4}) ||
		got.Model.Risk != spec.LossSoftmax ||
		got.Model.Activation != spec.ActivationReLU || got.Model.HasBias || got.Model.Ridge != 0.1 ||
		got.Training.ExchangeKind != spec.ExchangeGradient ||
		got.Training.LocalStepProbability != 0.5 || got.Training.GradientNoise != task.GradientNoise {
		t.Errorf("%+v", got)
	}
}

// TestWireSchedule compares the step size schedule η_t = 2/(μ_sc(γ+t)), with γ = max{8 L_s/μ_sc − 1, H}, from theorem 1
// of the FedDec paper with a manual calculation: 8·4/0.5 − 1 = 63.
func TestWireSchedule(t *testing.T) {
	task := settings.DefaultTask()
	task.StepSize = spec.StepSize{Constant: 0.02, IsDiminishing: true, StrongConvexity: 0.5, Smoothness: 4}
	for steps, gamma := range map[int]float64{10: 63, 100: 100} {
		task.Steps.Max = steps
		got := task.ToWireTask(false).Training
		if got.StepSize != 0 || got.StrongConvexity != 0.5 || got.StepSizeDecayOffset != gamma {
			t.Errorf("H = %d: step size %v, μ_sc %v, γ %v; want 0, 0.5, %v", steps, got.StepSize, got.StrongConvexity,
				got.StepSizeDecayOffset, gamma)
		}
	}
}
