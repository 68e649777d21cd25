// Package config fills a daemon's configuration struct, strictly, and shows it again.
//
// Sources are read in a fixed order, each overriding the one before: the defaults already in the struct, the YAML
// file, the environment, the command line. Nothing is accepted silently: an unknown or repeated key, a value of the
// wrong type, a second YAML document, an unknown environment variable, an alias or an emptied file is an [Error] that
// names its origin (file, line and column, variable or flag). All of them are reported together, joined.
//
// The package knows nothing of the daemons. A configuration struct names each exported field's key in a yaml tag
// (`yaml:"-"` hides a field) and is made of: string, bool, the integer and float kinds, [time.Duration] ("30s"),
// [spec.ByteSize] ("40MB"), [Secret], [OneOrMore], []string, []int, []float64, [][]float64, maps of texts to these,
// types that read themselves ([TextParser]), structs as sections, pointers to structs as sections that stay nil until a
// key in them is set, and lists of structs, of which each entry is a section. Lists and maps replace the default;
// they do not add to it. The keys of an embedded struct are those of the struct around it. An entry of a list that
// embeds what the configuration itself embeds begins with its values: it overrides them. Any other field type is a
// mistake of the programmer, and panics.
package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// ExitBadConfig is the exit status of a daemon whose configuration is refused: EX_CONFIG of sysexits.h. A service
// manager told about it does not restart the daemon, since a restart cannot help.
const ExitBadConfig = 78

// Source says where a configuration comes from. Every part is optional.
type Source struct {
	// Path of the YAML file; "" reads no file.
	Path string
	// Text, unless it is nil, is the file's content, which then is not read.
	Text []byte
	// IgnoreForeignKeys passes over the keys at the top of the file that cfg lacks: cfg is a part of the file.
	IgnoreForeignKeys bool
	// EnvPrefix of the variables that set keys: with "AGENTD", AGENTD_BROKER_URL sets broker.url. "" reads none.
	// Lists and maps are written as in the file, [a, b] and {k: v}, or a list as a,b,c, a map as k=v,k=v, and a map of
	// lists as k=a:b,k=c:d.
	EnvPrefix string
	// IgnoredVariables are variables that have the prefix but set no key, such as AGENTD_CONFIG, the path itself. Any
	// other unknown variable with the prefix is refused.
	IgnoredVariables []string
	// Environ is the environment in the form of os.Environ.
	Environ []string
	// Overrides are values from the command line by key path ("broker.url"), written as in the environment.
	Overrides map[string]string
}

// Load fills cfg, a pointer to a struct that holds the defaults, from src, then calls its Validate() error, if it
// has one and everything could be read. Validate joins [*spec.FieldError] values; each is reported where its key was
// set.
//
// The returned error is an *[Error], or several joined. After an error the content of cfg is unspecified:
// to keep a running configuration, load into a fresh struct.
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

// structValueOf panics unless cfg is a pointer to a struct.
func structValueOf(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		panic("config: want a non-nil pointer to a struct")
	}
	return v.Elem()
}

type loader struct {
	src         Source
	configValue reflect.Value
	schema      schema
	fileText    *configText       // nil without a readable file
	originByKey map[string]origin // the last source of each key; elements and entries as "agents[1]" and "labels.site"
	errs        []error
	// pendingListEntryFills fill the lists whose entries begin with the values of the configuration, which must have
	// all of them.
	pendingListEntryFills []func()
}

// origin is a place a value comes from. line and column are zero outside a file.
type origin struct {
	sourceName   string
	line, column int
}

func (l *loader) recordError(at origin, problem, hint string) {
	l.errs = append(l.errs, l.fileText.errorAt(at, problem, hint))
}

// recordKeyError is fail with the key path in front of the problem.
func (l *loader) recordKeyError(at origin, key, problem, hint string) {
	l.recordError(at, key+": "+problem, hint)
}

// loadFile sets the keys that the YAML file has.
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
		l.recordError(root.origin, "want lines of the form key: value, got "+root.describe(), "")
	}
}

// loadEnvironment sets the keys that have a variable. Variables are taken in order of name, so that errors come out in
// the same order every time.
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
			l.recordKeyError(at, key, "is a section", "set one of its keys: "+strings.Join(keysOf(f.sectionFields),
				", "))
		default:
			l.overrideField(f, l.src.Overrides[key], at)
		}
	}
}

// overrideField sets a field again; the places of its earlier elements and entries are gone.
func (l *loader) overrideField(f *schemaField, text string, at origin) {
	maps.DeleteFunc(l.originByKey, func(key string, _ origin) bool {
		return strings.HasPrefix(key, f.key+"[") || strings.HasPrefix(key, f.key+".")
	})
	if f.typ.Kind() == reflect.Slice && !isFlowNotation(text) {
		switch inner := f.typ.Elem(); {
		case inner.Kind() == reflect.Slice:
			l.recordKeyError(at, f.key, "is a list of lists", "write [[a, b], [c, d]]")
			return
		case isSection(inner):
			l.recordKeyError(at, f.key, "is a list of sections", "write [{a: b}, {a: c}]")
			return
		}
	}
	l.setField(f.key, f.fieldValueIn(l.configValue, true), l.parseOverrideText(f, text, at))
}
