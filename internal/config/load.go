// Package config fills a daemon's configuration struct strictly, and prints it.
//
// Sources are read in a fixed order, and each source overrides the previous source: the defaults already in the struct,
// the YAML file, the environment, the command line. Invalid input is never ignored: an unknown or repeated key, a value
// of the wrong type, a second YAML document, an unknown environment variable, an alias or an emptied file is an [Error]
// that names its origin (file, line and column, variable or flag). All errors are reported together, joined.
//
// The package does not depend on the daemons. A configuration struct names each exported field's key in a yaml tag
// (`yaml:"-"` hides a field). The supported field types are: string, bool, the integer and float kinds, [time.Duration]
// ("30s"), [spec.ByteSize] ("40MB"), [Secret], [OneOrMore], []string, []int, []float64, [][]float64, maps of strings to
// these, [TextParser] implementations, structs as sections, pointers to structs as sections that stay nil until one of
// their keys is set, and lists of structs, whose entries are sections. Any other field type is a programming error and
// panics.
//
// Lists and maps replace the default instead of adding to it. The keys of an embedded struct belong to the surrounding
// struct. If an entry of a list embeds the same struct as the configuration, it starts with the configuration's values
// and overrides them.
package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ExitBadConfig is the exit status of a daemon with an invalid configuration: EX_CONFIG of sysexits.h. A service
// manager can be configured not to restart the daemon after it, since a restart cannot help.
const ExitBadConfig = 78

// Source describes where a configuration is read from: a YAML file, environment variables and the command line. Each of
// them is optional.
type Source struct {
	// Path is the path of the YAML file. If it is "", no file is read.
	Path string
	// Text, if not nil, is used as the content of the file at Path, which is then not read.
	Text []byte
	// IgnoreForeignKeys ignores top-level keys of the file that the configuration struct does not have. It is used if
	// the struct covers only a part of the file.
	IgnoreForeignKeys bool
	// EnvPrefix is the prefix of the variables that set keys: with "AGENTD", AGENTD_BROKER_URL sets broker.url. If it
	// is "", no variable is read. Lists and maps are written as in the file, [a, b] and {k: v}. A list may also be
	// a,b,c, a map k=v,k=v, and a map of lists k=a:b,k=c:d.
	EnvPrefix string
	// IgnoredVariables lists variables that have the prefix but set no key, such as AGENTD_CONFIG, which contains the
	// path of the file. Any other unknown variable with the prefix is an error.
	IgnoredVariables []string
	// Environ is the environment in the form of os.Environ.
	Environ []string
	// Overrides contains values from the command line by key path ("broker.url"), written as in the environment.
	Overrides map[string]string
}

// Load fills cfg from src. cfg is a pointer to a struct with the defaults. If all sources could be read, If cfg has a
// method Validate() error, Load then calls this method. Validate joins [*spec.FieldError] values. Each is reported at
// the location where its key was set.
//
// The returned error is an *[Error], or several of them joined. After an error the content of cfg is unspecified. To
// keep a running configuration, load into a new struct.
func Load(cfg any, src Source) error {
	root := structValueOf(cfg)
	l := &loader{src: src, configValue: root, schema: newSchema(root.Type()), originByKey: map[string]origin{}}
	if src.Path != "" || src.Text != nil {
		l.loadFile()
	}
	l.loadEnvironment()
	l.loadCommandLine()
	for _, fill := range l.pendingListEntryFills {
		fill()
	}
	if v, ok := cfg.(interface{ Validate() error }); ok && len(l.errs) == 0 {
		l.addValidationErrors(v.Validate())
	}
	return errors.Join(l.errs...)
}

// structValueOf returns the struct that cfg points to. It panics if cfg is not a pointer to a struct.
func structValueOf(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		panic("config: the argument must be a non-nil pointer to a struct")
	}
	return v.Elem()
}

type loader struct {
	src         Source
	configValue reflect.Value
	schema      schema
	fileText    *configText // text of the configuration file; nil if no file could be read
	// originByKey contains the place where each key was last set. Elements of lists and maps have keys such as
	// "agents[1]" and "labels.site".
	originByKey map[string]origin
	errs        []error
	// pendingListEntryFills sets the lists whose entries inherit values from the whole configuration. These functions
	// run after all other keys have been set.
	pendingListEntryFills []func()
}

// origin is the source of a value. line and column are zero if the value does not come from a file.
type origin struct {
	sourceName   string
	line, column int
}

func (l *loader) recordError(at origin, problem, hint string) {
	l.errs = append(l.errs, l.fileText.errorAt(at, problem, hint))
}

// recordKeyError records an error like recordError, with the path of the key before the problem.
func (l *loader) recordKeyError(at origin, key, problem, hint string) {
	l.recordError(at, key+": "+problem, hint)
}

func (l *loader) loadFile() {
	doc, root, failure := readDocument(l.src, l.schema)
	l.fileText = doc
	switch {
	case failure != nil:
		l.errs = append(l.errs, failure)
	case root.kind == mappingKind:
		if l.src.IgnoreForeignKeys {
			root.mappingEntries = slices.DeleteFunc(root.mappingEntries, func(e mappingEntry) bool {
				return !slices.ContainsFunc(l.schema.topLevelFields,
					func(f *schemaField) bool { return f.lastKeyPart == e.keyName })
			})
		}
		l.setSection(l.configValue, root, l.schema.topLevelFields)
	case root.kind != emptyKind:
		l.recordError(root.origin, "want lines of the form \"key: value\", got "+root.describe(), "")
	}
}

// loadEnvironment sets the keys from environment variables. Variables are sorted by name, so that the order of errors
// is deterministic.
func (l *loader) loadEnvironment() {
	if l.src.EnvPrefix == "" {
		return
	}
	prefix := l.src.EnvPrefix + "_"
	for _, entry := range slices.Sorted(slices.Values(l.src.Environ)) {
		variable, text, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(variable, prefix)
		if !ours || slices.Contains(l.src.IgnoredVariables, variable) {
			continue
		}
		at := origin{sourceName: "environment " + variable}
		if f := l.schema.leafByEnvVariable[name]; f != nil {
			l.overrideField(f, text, at)
			continue
		}
		near := closestName(name, slices.Sorted(maps.Keys(l.schema.leafByEnvVariable)))
		if near != "" {
			near = prefix + near
		}
		l.recordError(at, "unknown variable", didYouMean(near))
	}
}

func (l *loader) loadCommandLine() {
	at := origin{sourceName: "command line"}
	for _, key := range slices.Sorted(maps.Keys(l.src.Overrides)) {
		switch f := l.schema.fieldByKey[key]; {
		case f == nil:
			l.recordError(at, "unknown key "+quoteShortened(key), didYouMean(closestName(key,
				keysOf(l.schema.leafFields))))
		case f.isSectionField():
			l.recordKeyError(at, key, "is a section",
				"set one of the keys in this section: "+strings.Join(keysOf(f.sectionFields),
					", "))
		default:
			l.overrideField(f, l.src.Overrides[key], at)
		}
	}
}

// overrideField replaces the value of a field. It also removes the recorded origins of the elements that the previous
// list or map contained.
func (l *loader) overrideField(f *schemaField, text string, at origin) {
	maps.DeleteFunc(l.originByKey, func(key string, _ origin) bool {
		return strings.HasPrefix(key, f.key+"[") || strings.HasPrefix(key, f.key+".")
	})
	if f.typ.Kind() == reflect.Slice && !isFlowNotation(text) {
		switch inner := f.typ.Elem(); {
		case inner.Kind() == reflect.Slice:
			l.recordKeyError(at, f.key, "must be a list of lists", "write the value as [[a, b], [c, d]]")
			return
		case isSection(inner):
			l.recordKeyError(at, f.key, "must be a list of sections", "write the value as [{a: b}, {a: c}]")
			return
		}
	}
	l.setField(f.key, f.fieldValueIn(l.configValue, true), l.parseOverrideText(f, text, at))
}
