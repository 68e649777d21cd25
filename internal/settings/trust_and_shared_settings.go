package settings

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// ReadRootDocument reads a root document (list of trusted keys) from a file, and checks that the document belongs to
// the federation.
func ReadRootDocument(path, federation string) (wire.RootDocument, error) {
	p, err := os.ReadFile(path)
	if err != nil {
		return wire.RootDocument{}, err
	}
	d, err := wire.DecodeAndVerifyRootDocument(p)
	if err != nil {
		return d, fmt.Errorf("%s: %w", path, err)
	}
	if string(d.Federation) != federation {
		return d, fmt.Errorf("%s is the root document of the federation %s, not of %s", path, d.Federation, federation)
	}
	return d, nil
}

// CoordinatorKeyOrRoot returns the configured public key of the coordinator. If no key is configured, it returns the
// root document (list of trusted keys). The error is a [*spec.FieldError].
func (m *FederationSettings) CoordinatorKeyOrRoot() (ed25519.PublicKey, *wire.RootDocument, error) {
	i := &m.Identity
	if i.RootFile == "" {
		key, err := keys.ParsePublic(i.CoordinatorKey)
		if err != nil {
			return nil, nil, &spec.FieldError{Key: "identity.coordinator_key", Problem: err.Error() + "; a device " +
				"that joins with `agentd join` does not need this key"}
		}
		return key, nil, nil
	}
	d, err := ReadRootDocument(i.RootFile, m.Federation)
	switch {
	case err != nil:
	case i.CoordinatorKey != "":
		return nil, nil, &spec.FieldError{Key: "identity.coordinator_key",
			Problem: "cannot be combined with identity.root_file, which already contains the coordinator's key: " +
				"remove one of the two keys"}
	case slices.Contains(d.RevokedAgents, wire.AgentID(m.ID)):
		err = fmt.Errorf("the root document %s revokes the device %s", i.RootFile, m.ID)
	}
	if err != nil {
		return nil, nil, &spec.FieldError{Key: "identity.root_file", Problem: err.Error()}
	}
	return nil, &d, nil
}

// sharedSettings lists the keys of agentd.yaml that the coordinator sends to joining devices. These keys cannot start a
// program, name a file, or reveal information about the device's data.
var sharedSettings = []sharedSetting{
	{"broker.keep_alive", func(a *Agent) string { return a.Broker.KeepAlive.String() }},
	{"broker.min_rate", func(a *Agent) string { return a.Broker.MinRate.String() }},
	{"broker.prefix", func(a *Agent) string { return a.Broker.Prefix }},
	{"broker.qos", func(a *Agent) string { return fmt.Sprint(a.Broker.QoS) }},
	{"broker.url", func(a *Agent) string { return strings.Join(a.Broker.URLs, ",") }},
	{"d2d.uplink", func(a *Agent) string {
		if a.D2D == nil || !a.D2D.UsesUplink {
			return ""
		}
		return "true"
	}},
	{"data.decimal", func(a *Agent) string { return a.Data.DecimalSeparator }},
	{"data.delimiter", func(a *Agent) string { return a.Data.Delimiter }},
}

type sharedSetting struct {
	settingKey string
	valueOf    func(a *Agent) string
}

// IsSharedSetting reports whether the coordinator may set the given key of agentd.yaml.
func IsSharedSetting(key string) bool {
	return slices.ContainsFunc(sharedSettings, func(s sharedSetting) bool { return s.settingKey == key })
}

// SharedSettings returns the shared settings that differ from the defaults.
func (a *Agent) SharedSettings() (all []wire.AgentSetting) {
	usual := DefaultAgent()
	for _, s := range sharedSettings {
		if value := s.valueOf(a); value != s.valueOf(&usual) {
			all = append(all, wire.AgentSetting{Name: s.settingKey, Value: value})
		}
	}
	return all
}

// agentWithoutValidation is an Agent without the method Validate, for configurations that lack device-specific keys.
type agentWithoutValidation Agent

// UnvalidatedAgentDefaults returns a pointer to the default configuration, as a type without the method Validate.
func UnvalidatedAgentDefaults() any {
	a := agentWithoutValidation(DefaultAgent())
	return &a
}

// ReadUnvalidatedAgent reads a configuration that may lack device-specific keys, such as the initial configuration of
// all devices.
func ReadUnvalidatedAgent(path string) (*Agent, error) {
	a := UnvalidatedAgentDefaults()
	err := config.Load(a, config.Source{Path: path})
	return (*Agent)(a.(*agentWithoutValidation)), err
}
