package config

import (
	"errors"
	"strings"

	"github.com/fedmesh/fedmesh/spec"
)

// addValidationErrors reports the errors of Validate, each at the location where its key was set.
func (l *loader) addValidationErrors(err error) {
	told := map[string]bool{}
	for _, err := range flattenErrors(err) {
		var problem *spec.FieldError
		if !errors.As(err, &problem) {
			l.errs = append(l.errs, &Error{Origin: l.defaultOrigin().sourceName, Problem: err.Error(), Err: err})
			continue
		}
		key := problem.Key
		at, set := l.originOfKey(key)
		if _, rest, entry := strings.Cut(key, "]."); entry && !set && l.schema.fieldByKey[rest] != nil {
			// The list entry inherits this value from the top level of the configuration, and other entries may inherit
			// it too.
			if _, above := l.originByKey[rest]; above {
				key = rest
				at, set = l.originOfKey(key)
			}
		}
		if told[key+problem.Problem] {
			continue
		}
		told[key+problem.Problem] = true
		hint, f := "", l.schema.fieldByKey[key]
		if f != nil && !f.isSectionField() && !set && l.src.EnvPrefix != "" {
			hint = "set " + f.key + " in the file or " + l.src.EnvPrefix + "_" + f.envVariable() + " in the environment"
		}
		l.recordKeyError(at, key, problem.Problem, hint)
	}
}

// flattenErrors returns the individual errors of joined errors.
func flattenErrors(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, flattenErrors(err)...)
	}
	return all
}

// originOfKey returns the location where the key was set. If the key was not set, it returns the location of the
// nearest enclosing key that was set.
func (l *loader) originOfKey(key string) (at origin, set bool) {
	for k := key; k != ""; k = k[:max(strings.LastIndexAny(k, ".["), 0)] {
		if at, ok := l.originByKey[k]; ok {
			return at, k == key
		}
	}
	return l.defaultOrigin(), false
}

// defaultOrigin returns the origin of problems that belong to no key.
func (l *loader) defaultOrigin() origin {
	if l.src.Path == "" {
		return origin{sourceName: "defaults"}
	}
	return origin{sourceName: l.src.Path}
}
