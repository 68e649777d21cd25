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

// Membership is what is said of one of several federations. A key that it leaves out is as it is for the device.
type Membership struct {
	Name   string `yaml:"name"` // for people, and of the state folder; empty = the federation's
	Member `yaml:",inline"`
}

// PerFederation returns the settings of the device in each of its federations: those of the file, if that names one.
func (a *Agent) PerFederation() (all []*Agent) {
	a.each(func(_ string, m *Agent) { all = append(all, m) })
	return all
}

// each visits the settings of each federation, with the key of its section; empty if it is the whole file.
func (a *Agent) each(visit func(section string, m *Agent)) {
	if len(a.Federations) == 0 {
		visit("", a)
	}
	for i, f := range a.Federations {
		m := *a
		m.Federations, m.Member, m.FederationName = nil, f.Member, cmp.Or(f.Name, f.Federation)
		visit(federationSection(i), &m)
	}
}

func federationSection(i int) string { return fmt.Sprintf("federations[%d]", i) }

// ForFederation returns the settings of the device in the federation with this name, which may be empty if it is in
// one.
func (a *Agent) ForFederation(name string) (*Agent, error) {
	all := a.PerFederation()
	var names []string
	for _, m := range all {
		if known := cmp.Or(m.FederationName, m.Federation); name == known || name == "" && len(all) == 1 {
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

// FederationFolder is where the state of the device in its federation is.
func (a *Agent) FederationFolder() string { return filepath.Join(a.StateDir, a.FederationName) }

// federations finds what keeps federations from being on one device.
func (c *Check) federations(a *Agent) {
	c.Require(len(a.Federations) == 0 || a.Federation == "", "federation",
		"is set, and so is federations: write it into "+
			"an entry there, or remove federations")
	before := map[string]string{} // what only one of them may have, and whose it is
	once := func(what, section, key, format string, args ...any) bool {
		other, taken := before[what]
		c.Require(!taken, section+key, "is as in "+other+": "+format, args...)
		before[what] = section
		return !taken
	}
	a.each(func(section string, m *Agent) {
		if section == "" || wire.Federation(m.Federation).Validate() != nil {
			return // one, or it is told elsewhere
		}
		for _, u := range m.Broker.URLs {
			if !once("client "+m.Federation+" "+u, section, ".federation",
				"%s knows a device once in each federation; remove one of the two", u) {
				return
			}
		}
		c.AddError(section+".name", wire.Federation(m.FederationName).Validate())
		c.Require(!slices.Contains([]string{"boot", "budget", "lock"}, m.FederationName), section+".name",
			"is %s, a file of the device in the folder of all; give it another name", m.FederationName)
		once("folder "+m.FederationName, section, ".name", "the state of both would be in %s; give one another name",
			m.FederationFolder())
		if m.Data.Source == data.SourceLines && m.Data.Lines != "" {
			once("lines "+m.Data.Lines, section, ".data.lines", "each line comes to one reader")
		}
		if p := m.Predict.ForecastTopic; p != "" {
			once("topic "+p, section, ".predict.publish", "nobody could tell the forecasts apart")
		}
	})
}
