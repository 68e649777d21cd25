package config

import (
	"errors"
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// addValidationErrors reports what Validate found, each problem where its key was set.
func (l *loader) addValidationErrors(err error) {
	told := map[string]bool{}
	for _, err := range flatten(err) {
		var problem *spec.FieldError
		if !errors.As(err, &problem) {
			l.errs = append(l.errs, &Error{Origin: l.defaultOrigin().name, Problem: err.Error(), Err: err})
			continue
		}
		key := problem.Key
		at, set := l.originOfKey(key)
		if _, rest, entry := strings.Cut(key, "]."); entry && !set && l.schema.byKey[rest] != nil {
			if _, above := l.origins[rest]; above { // the entry has it from there, and others may
				key = rest
				at, set = l.originOfKey(key)
			}
		}
		if told[key+problem.Problem] {
			continue
		}
		told[key+problem.Problem] = true
		hint, f := "", l.schema.byKey[key]
		if f != nil && !f.section() && !set && l.src.EnvPrefix != "" {
			hint = "set " + f.key + " in the file or " + l.src.EnvPrefix + "_" + f.envVariable() + " in the environment"
		}
		l.failKey(at, key, problem.Problem, hint)
	}
}

// flatten takes joined errors apart.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, flatten(err)...)
	}
	return all
}

// originOfKey returns where the key was set, or else the nearest key around it that was.
func (l *loader) originOfKey(key string) (at origin, set bool) {
	for k := key; k != ""; k = k[:max(strings.LastIndexAny(k, ".["), 0)] {
		if at, ok := l.origins[k]; ok {
			return at, k == key
		}
	}
	return l.defaultOrigin(), false
}

// defaultOrigin is the origin of a problem that no key has.
func (l *loader) defaultOrigin() origin {
	if l.src.Path == "" {
		return origin{name: "defaults"}
	}
	return origin{name: l.src.Path}
}
