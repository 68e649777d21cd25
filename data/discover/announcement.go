package discover

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// announcedValue describes a value that a device has announced to Home Assistant.
type announcedValue struct{ device, name, unit string }

// announcementFilters match the topics of MQTT discovery of Home Assistant.
var announcementFilters = []string{"homeassistant/+/+/config", "homeassistant/+/+/+/config"}

// entity contains the fields of a discovery message of Home Assistant, with the abbreviations of its documentation.
type entity struct {
	Base      string          `json:"~"`
	Name      json.RawMessage `json:"name"` // name of the value; may be null
	State     string          `json:"state_topic"`
	StateAbbr string          `json:"stat_t"`
	Template  string          `json:"value_template"`
	TmplAbbr  string          `json:"val_tpl"`
	Unit      string          `json:"unit_of_measurement"`
	UnitAbbr  string          `json:"unit_of_meas"`
	Device    struct {
		Name string `json:"name"`
	} `json:"device"`
	DeviceAbbr struct {
		Name string `json:"name"`
	} `json:"dev"`
}

// templatePath matches a template that selects one member, such as {{ value_json.ENERGY.Power }}.
var templatePath = regexp.MustCompile(`^\s*\{\{\s*value_json((?:\.\w+|\[['"][^'"\]]+['"]\])+)`)

// addAnnouncement stores the names and the unit of an announced value.
func (s *Survey) addAnnouncement(text []byte) {
	var e entity
	if json.Unmarshal(text, &e) != nil || len(s.announced) == MaxSeries {
		return
	}
	topic := cmp.Or(e.State, e.StateAbbr)
	switch {
	case strings.HasPrefix(topic, "~"):
		topic = e.Base + topic[1:]
	case strings.HasSuffix(topic, "~"):
		topic = topic[:len(topic)-1] + e.Base
	}
	column := ""
	if template := cmp.Or(e.Template, e.TmplAbbr); template != "" && !strings.Contains(template, "{{ value }}") {
		m := templatePath.FindStringSubmatch(template)
		if m == nil {
			return
		}
		column = templateColumn(m[1])
	}
	var name string
	_ = json.Unmarshal(e.Name, &name) // a name that is null or no text is left out
	a := announcedValue{cmp.Or(e.Device.Name, e.DeviceAbbr.Name), name, cmp.Or(e.Unit, e.UnitAbbr)}
	if topic != "" && !slices.ContainsFunc([]string{topic, column, a.device, a.name, a.unit},
		func(text string) bool { return !isUsableName(text) }) {
		s.announced[seriesKey{topic, column}] = a
	}
}

// templateColumn returns the path of a member in a template, such as .ENERGY['Power'], as a column.
func templateColumn(member string) string {
	var b strings.Builder
	for _, part := range regexp.MustCompile(`\.\w+|\[['"][^'"\]]+['"]\]`).FindAllString(member, -1) {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strings.Trim(part, `.[]'"`))
	}
	return b.String()
}
