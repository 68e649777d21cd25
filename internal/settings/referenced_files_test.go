package settings_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/agentd/agentconfig"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
)

// TestCredentials checks that secrets are read from systemd's credentials folder if the files themselves are
// unreadable, for example because they belong to root.
func TestCredentials(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("CREDENTIALS_DIRECTORY", folder)
	key, err := keys.CreateSigningKeyFile(filepath.Join(folder, "agent.key"))
	if err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("mqtt-password", "hush\n")
	put("d2d-password", "\n") // content of the credential if the password file is missing

	text := strings.Replace(agentFile(t), "  url: tcp://localhost:1883",
		"  url: tcp://localhost:1883\n  password_file: /etc/agentd/mqtt-password", 1)
	own := strings.Fields(text[strings.Index(text, "key_file: "):])[1]
	text = strings.Replace(text, own, "/etc/agentd/agent.key", 1)
	s := settings.DefaultAgent()
	if err := settings.Load(&s, "agentd", writeFile(t, "agentd.yaml", text), nil); err != nil {
		t.Fatal(err)
	}
	cfg, err := agentconfig.AgentConfigForFederation(&s)
	if err != nil || !cfg.Identity.Key.Equal(key) {
		t.Errorf("the key is not the one of the credential: %v", err)
	}
	if o, _, err := s.Broker.SessionOptions("c"); err != nil || o.Password != "hush" {
		t.Errorf("the password is %q, %v", o.Password, err)
	}
	site := (&settings.D2D{}).SiteBroker()
	if o, _, err := site.SessionOptions("c"); err != nil || o.Password != "" {
		t.Errorf("the site's broker is told the password %q, %v", o.Password, err)
	}

	put("agent.key", "\n")
	// The error must name the configured file instead of the credential.
	wantError(t, settings.Load(&s, "agentd", writeFile(t, "agentd.yaml", text), nil), "/etc/agentd/agent.key")
}

// TestFiles checks that FilesByKey returns every file that the settings name.
func TestFiles(t *testing.T) {
	agent, coordinator := settings.DefaultAgent(), coordinatorsettings.Default()
	agent.D2D, coordinator.HeldOutData = &settings.D2D{}, &data.Config{}
	for _, s := range []interface{ FilesByKey() map[string]string }{&agent, &coordinator} {
		files := s.FilesByKey()
		for _, key := range leaves(reflect.TypeOf(s).Elem(), "") {
			_, told := files[key]
			part := key[strings.LastIndex(key, ".")+1:]
			if is := strings.HasSuffix(part, "file") || part == "csv" || part == "initial"; is != told {
				t.Errorf("%T: %s is a file: %v; told: %v", s, key, is, told)
			}
		}
	}
}
