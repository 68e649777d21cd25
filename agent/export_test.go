package agent

import (
	"reflect"
	"slices"
	"strings"
)

// AddPart adds a part to an agent that has not started.
func (a *Agent) AddPart(p any) { a.parts = append(a.parts, p) }

// UnlistedParts returns the names of the fields of Agent that hold a part which is missing in the agent's list of
// parts, so that its hooks are never called. A part is a pointer to a type of a package below agent/, other than
// agent/part.
func (a *Agent) UnlistedParts() (unlisted []string) {
	agent := reflect.ValueOf(a).Elem()
	parentPath := agent.Type().PkgPath() + "/"
	for i := range agent.NumField() {
		field := agent.Type().Field(i)
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		path := field.Type.Elem().PkgPath()
		if !strings.HasPrefix(path, parentPath) || path == parentPath+"part" {
			continue
		}
		if !slices.ContainsFunc(a.parts, func(p any) bool {
			listed := reflect.ValueOf(p)
			return listed.Type() == field.Type && listed.Pointer() == agent.Field(i).Pointer()
		}) {
			unlisted = append(unlisted, field.Name)
		}
	}
	return unlisted
}
