package settings_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// twoFederations returns a valid configuration with two federations, whose entries inherit some settings of the device
// and override others.
func twoFederations(t *testing.T) string {
	t.Helper()
	key, _ := writeKey(t)
	return "id: roof-1\nstate_dir: /var/lib/x\nbroker:\n  url: tcp://localhost:1883\n  qos: 1\n" +
		"identity:\n  key_file: " + key + "\n  coordinator_key: " + publicKey(7) + "\n" +
		"data:\n  csv: rows.csv\nd2d:\n  uplink: true\n  place: {x: 1}\n" +
		"federations:\n  - federation: air\n  - federation: power\n    id: p-1\n" +
		"    broker: {url: \"tcp://other:1883\", qos: 0}\n    identity: {coordinator_key: " + publicKey(8) + "}\n" +
		"    data: {csv: power.csv, columns: {y: watts}}\n    d2d: {cell: hall, place: {y: 2}}\n" +
		"    privacy: {min_rows: 50}\n"
}

func loadAgent(path string) (*settings.Agent, error) {
	s := settings.DefaultAgent()
	return &s, settings.Load(&s, "agentd", path, nil)
}

// TestEach checks that the entry of a federation inherits the settings of the device, and that its own settings do not
// affect the device or other entries. The printed configuration must load with the same values.
func TestEach(t *testing.T) {
	t.Setenv("AGENTD_PRIVACY_MIN_ROWS", "20") // setting of the device, which one entry overrides
	s, err := loadAgent(writeFile(t, "agentd.yaml", twoFederations(t)))
	if err != nil {
		t.Fatal(err)
	}
	check := func(s *settings.Agent) {
		t.Helper()
		all := s.SettingsPerFederation()
		if len(all) != 2 {
			t.Fatalf("%d federations", len(all))
		}
		air, power := all[0], all[1]
		if air.Federation != "air" || air.LocalFederationName != "air" || air.ID != "roof-1" || air.Broker.QoS != 1 ||
			air.Broker.URLs[0] != "tcp://localhost:1883" || air.Data.CSVPath != "rows.csv" ||
			air.D2D.NeighborCell != "" ||
			*air.D2D.Place != (settings.AgentLocation{X: 1}) || air.Privacy.MinRowsToParticipate != 20 ||
			len(air.Data.ColumnByInput) != 0 {
			t.Errorf("air has %+v", air.FederationSettings)
		}
		if power.ID != "p-1" || power.Broker.QoS != 0 || power.Broker.URLs[0] != "tcp://other:1883" ||
			power.Broker.KeepAlive != air.Broker.KeepAlive || power.Identity.CoordinatorKey != publicKey(8) ||
			power.Identity.KeyFile != air.Identity.KeyFile || power.Data.CSVPath != "power.csv" ||
			power.Data.ColumnByInput["y"] != "watts" || power.D2D.NeighborCell != "hall" || !power.D2D.UsesUplink ||
			*power.D2D.Place != (settings.AgentLocation{X: 1, Y: 2}) || power.Privacy.MinRowsToParticipate != 50 {
			t.Errorf("power has %+v", power.FederationSettings)
		}
		for _, m := range all {
			c, err := agentconfig.AgentConfigForFederation(m)
			if want := filepath.Join("/var/lib/x", m.LocalFederationName); err != nil || c.StateDir != want ||
				m.FederationFolder() != want {
				t.Errorf("%s: folder %s, %v", m.LocalFederationName, c.StateDir, err)
			}
		}
	}
	check(s)
	var text strings.Builder
	if err := config.WriteYAML(&text, s); err != nil {
		t.Fatal(err)
	}
	again, err := loadAgent(writeFile(t, "agentd.yaml", text.String()))
	if err != nil {
		t.Fatalf("%v of\n%s", err, text.String())
	}
	check(again)
	var printed strings.Builder
	if err := config.WriteYAML(&printed, again); err != nil || printed.String() != text.String() {
		t.Errorf("printed\n%s\nand then\n%s", text.String(), printed.String())
	}
	files := s.FilesByKey()
	if files["federations[0].data.csv"] != "rows.csv" || files["federations[1].data.csv"] != "power.csv" ||
		files["federations[1].identity.key_file"] == "" {
		t.Errorf("files %v", files)
	}
}

// TestOneFederation checks that a file without entries for federations configures a single federation, which uses the
// state folder itself and no subfolder.
func TestOneFederation(t *testing.T) {
	s, err := loadAgent(writeFile(t, "agentd.yaml", agentFile(t)))
	if err != nil {
		t.Fatal(err)
	}
	all := s.SettingsPerFederation()
	if len(all) != 1 || all[0].LocalFederationName != "" || all[0].FederationFolder() != "/var/lib/agentd" ||
		all[0].Federation != "air" {
		t.Errorf("%d federations: %+v", len(all), all[0])
	}
	for _, name := range []string{"", "air"} {
		if m, err := s.ForFederation(name); err != nil || m.Federation != "air" {
			t.Errorf("in %q: %v", name, err)
		}
	}
}

func TestIn(t *testing.T) {
	s, err := loadAgent(writeFile(t, "agentd.yaml", twoFederations(t)))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.ForFederation("power"); err != nil || m.ID != "p-1" {
		t.Errorf("%v", err)
	}
	_, err = s.ForFederation("")
	wantError(t, err, "the device is in several federations: choose one with --federation air or --federation power")
	_, err = s.ForFederation("powr")
	wantError(t, err, `unknown federation "powr": the configuration contains air, power`)
}

func TestFederationProblems(t *testing.T) {
	checkProblems(t, twoFederations(t), []problem{
		{"id: roof-1 -> id: roof-1\nfederation: air",
			`:2:13: federation: cannot be combined with the section federations: move this key into an ` +
				`entry of federations, or remove that section`},
		{"- federation: power -> - federation: air\n    name: power\n" +
			"    broker: {url: [\"tcp://a:1\", \"tcp://localhost:1883\"]}\n  - federation: third",
			`:16:17: federations[1].federation: duplicates federations[0]: a device can ` +
				`join a federation only once through the broker tcp://localhost:1883; remove one of the entries`},
		{"- federation: power -> - federation: air", `:16:15: federations[1].name: duplicates federations[0]: both ` +
			`federations would store their state in the folder /var/lib/x/air; rename one of them`},
		{"- federation: power -> - federation: power\n    name: lock", `:17:11: federations[1].name: is lock, which ` +
			`is also the name of a file in the state folder; choose another name`},
		{"- federation: power -> - federation: power\n    name: Power", `:17:11: federations[1].name: federation ` +
			`"Power"`},
		{"- federation: power\n    id: p-1 -> - id: p-1", `:16:7: federations[1].federation: federation "": `},
		{"- federation: power -> - federation: power\n    state_dir: /x",
			`:17:5: unknown key "state_dir"; state_dir is a top-level key: move it out of this section`},
		{"{csv: power.csv -> {csv: \"\"", `:20:17: federations[1].data.csv: no file is set`},
		{"qos: 0} -> qos: 7}", `:18:44: federations[1].broker.qos: must be 0 or 1, but is 7`},
		// the problem is reported only once, at the line of the entry
		{"  qos: 1 ->   qos: 7", `:5:8: broker.qos: must be 0 or 1, but is 7`},
		{" -> predict: {publish: a/b, keep: 1, broker: {url: \"tcp://b:1\"}}",
			`:23:20: predict.publish: duplicates federations[0]: the forecasts of two federations on one topic ` +
				`could not be distinguished`},
	}, func(path string) error { _, err := loadAgent(path); return err })
	_, err := loadAgent(writeFile(t, "once.yaml", strings.Replace(twoFederations(t), ", qos: 0", "", 1)+
		"compute: {step_time: -1s}\n"))
	if n := strings.Count(err.Error(), "compute.step_time: must not be negative"); n != 1 {
		t.Errorf("what both have from above is told %d times: %v", n, err)
	}
	text := strings.ReplaceAll(twoFederations(t), "csv: ", "source: lines, lines: /dev/x, time: t, what: ")
	text = strings.NewReplacer("data:\n  source: lines, lines: /dev/x, time: t, what: rows.csv",
		"data: {source: lines, lines: /dev/x}", ", time: t, what: power.csv", "").Replace(text)
	_, err = loadAgent(writeFile(t, "agentd.yaml", text))
	wantError(t, err, "federations[1].data.lines: duplicates federations[0]: two federations cannot read lines from "+
		"the same file or pipe, because each line can be read only once")
}
