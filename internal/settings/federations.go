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

// FederationMembership contains the device's settings for one of several federations. Keys that are not set have the
// values of the device.
type FederationMembership struct {
	// name for display and for the state folder; empty means the name of the federation
	LocalName          string `yaml:"name"`
	FederationSettings `yaml:",inline"`
}

// SettingsPerFederation returns the device's settings for each of its federations. If the device belongs to only one
// federation, the result contains only a.
func (a *Agent) SettingsPerFederation() (all []*Agent) {
	a.eachFederation(func(_ string, m *Agent) { all = append(all, m) })
	return all
}

// eachFederation calls visit with the settings of each federation and the configuration key of the federation's
// section. The key is empty if the device belongs to only one federation.
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

// ForFederation returns the settings for the federation with the given name. name may be empty if the device belongs to
// only one federation.
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
		return nil, fmt.Errorf("the device is in several federations: choose one with --federation %s",
			strings.Join(names, " or --federation "))
	}
	return nil, fmt.Errorf("unknown federation %q: the configuration contains %s", name,
		strings.Join(names, ", "))
}

// FederationFolder returns the folder in which the device keeps the state of this federation.
func (a *Agent) FederationFolder() string { return filepath.Join(a.StateDir, a.LocalFederationName) }

// checkFederations reports conflicts between the federations of one device.
func (c *SettingsChecker) checkFederations(a *Agent) {
	c.Require(len(a.Federations) == 0 || a.Federation == "", "federation",
		"cannot be combined with the section federations: move this key into an entry of federations, or remove that "+
			"section")
	before := map[string]string{} // section that uses a value, for each value that must be unique
	once := func(what, section, key, format string, args ...any) bool {
		other, taken := before[what]
		c.Require(!taken, section+key, "duplicates "+other+": "+format, args...)
		before[what] = section
		return !taken
	}
	a.eachFederation(func(section string, m *Agent) {
		if section == "" || wire.FederationName(m.Federation).Validate() != nil {
			return // the device has a single federation, or the problem has already been reported
		}
		for _, u := range m.Broker.URLs {
			if !once("client "+m.Federation+" "+u, section, ".federation",
				"a device can join a federation only once through the broker %s; remove one of the entries", u) {
				return
			}
		}
		c.AddError(section+".name", wire.FederationName(m.LocalFederationName).Validate())
		c.Require(!slices.Contains([]string{"boot", "budget", "lock"}, m.LocalFederationName), section+".name",
			"is %s, which is also the name of a file in the state folder; choose another name", m.LocalFederationName)
		once("folder "+m.LocalFederationName, section, ".name",
			"both federations would store their state in the folder %s; rename one of them",
			m.FederationFolder())
		if m.Data.Source == data.SourceLines && m.Data.LinesPath != "" {
			once("lines "+m.Data.LinesPath, section, ".data.lines", "two federations cannot read lines from the same "+
				"file or pipe, because each line can be read only once")
		}
		if p := m.Predict.ForecastTopic; p != "" {
			once("topic "+p, section, ".predict.publish", "the forecasts of two federations on one topic could not "+
				"be distinguished")
		}
	})
}
