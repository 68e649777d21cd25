package settings

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/wire"
)

// FederationMembership contains the settings for one of several federations. Missing keys have the device's values.
type FederationMembership struct {
	LocalName          string `yaml:"name"` // name for display and of the state folder; empty for the federation's name
	FederationSettings `yaml:",inline"`
}

// SettingsPerFederation returns the device's settings for each of its federations. If the device is in one federation,
// the result is the file's settings.
func (a *Agent) SettingsPerFederation() (all []*Agent) {
	a.eachFederation(func(_ string, m *Agent) { all = append(all, m) })
	return all
}

// eachFederation calls visit with the settings of each federation and the key of its section. The key is empty if the
// device is in one federation.
func (a *Agent) eachFederation(visit func(section string, m *Agent)) {
	if len(a.Federations) == 0 {
		visit("", a)
	}
	for i, f := range a.Federations {
		m := *a
		m.Federations, m.FederationSettings, m.LocalFederationName = nil, f.FederationSettings, cmp.Or(f.LocalName,
			f.Federation)
		visit(federationsEntryKey(i), &m)
	}
}

func federationsEntryKey(i int) string { return fmt.Sprintf("federations[%d]", i) }

// ForFederation returns the settings for the federation with this name. name may be empty if the device is in one
// federation.
func (a *Agent) ForFederation(name string) (*Agent, error) {
	all := a.SettingsPerFederation()
	var names []string
	for _, m := range all {
		if known := cmp.Or(m.LocalFederationName, m.Federation); name == known || name == "" && len(all) == 1 {
			return m, nil
		} else {
			names = append(names, known)
		}
	}
	if name == "" {
		return nil, fmt.Errorf("the device is in several federations: say which one with --federation %s",
			strings.Join(names, " or --federation "))
	}
	return nil, fmt.Errorf("the device is in no federation %q: the configuration has %s", name,
		strings.Join(names, ", "))
}

// FederationFolder returns the state folder of the device in its federation.
func (a *Agent) FederationFolder() string { return filepath.Join(a.StateDir, a.LocalFederationName) }

// checkFederations reports conflicts between the federations of one device.
func (c *SettingsChecker) checkFederations(a *Agent) {
	c.Require(len(a.Federations) == 0 || a.Federation == "", "federation",
		"is set, and so is federations: write it into "+
			"an entry there, or remove federations")
	before := map[string]string{} // section that already uses a value, for values that must be unique
	once := func(what, section, key, format string, args ...any) bool {
		other, taken := before[what]
		c.Require(!taken, section+key, "is as in "+other+": "+format, args...)
		before[what] = section
		return !taken
	}
	a.eachFederation(func(section string, m *Agent) {
		if section == "" || wire.FederationName(m.Federation).Validate() != nil {
			return // a single federation, or already reported
		}
		for _, u := range m.Broker.URLs {
			if !once("client "+m.Federation+" "+u, section, ".federation",
				"%s knows a device once in each federation; remove one of the two", u) {
				return
			}
		}
		c.AddError(section+".name", wire.FederationName(m.LocalFederationName).Validate())
		c.Require(!slices.Contains([]string{"boot", "budget", "lock"}, m.LocalFederationName), section+".name",
			"is %s, a file of the device in the folder of all; give it another name", m.LocalFederationName)
		once("folder "+m.LocalFederationName, section, ".name",
			"the state of both would be in %s; give one another name",
			m.FederationFolder())
		if m.Data.Source == data.SourceLines && m.Data.LinesPath != "" {
			once("lines "+m.Data.LinesPath, section, ".data.lines", "each line comes to one reader")
		}
		if p := m.Predict.ForecastTopic; p != "" {
			once("topic "+p, section, ".predict.publish", "nobody could tell the forecasts apart")
		}
	})
}
