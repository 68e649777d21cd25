package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
	"regexp"
	"testing"
)

// TestSettingsAreApplied checks that each key of agentd.yaml and coordinator.yaml has an effect. A key has an effect if
// the program reads the field of the key in a function other than a check or a default.
func TestSettingsAreApplied(t *testing.T) {
	for program, settings := range map[string]struct{ path, name string }{
		"agentd":      {module + "/internal/settings", "Agent"},
		"coordinator": {module + "/internal/coordinatord/coordinatorsettings", "ConfigFile"},
	} {
		t.Run(program, func(t *testing.T) {
			packages := typeCheck(t, "./cmd/"+program)
			readFields := map[string]bool{}
			var keys []settingsKey
			for _, p := range packages {
				for _, file := range p.files {
					addReadFields(p.info, file, readFields)
				}
				if p.types.Path() == settings.path {
					keys = settingsKeys(p.types.Scope().Lookup(settings.name).Type(), "")
				}
			}
			if len(keys) < 50 {
				t.Fatalf("found only %d keys", len(keys))
			}
			for _, k := range keys {
				if !readFields[k.field] {
					t.Errorf("%s: no function uses %s, except checks and defaults", k.key, k.field)
				}
			}
		})
	}
}

// settingsKey is a key of a configuration file that holds a value and has no subkeys.
type settingsKey struct{ key, field string }

// settingsKeys returns the keys that are decoded into the settings type t. path is the key under which t is decoded; it
// is empty for the whole file.
func settingsKeys(t types.Type, path string) []settingsKey {
	for {
		if elem, ok := t.Underlying().(interface{ Elem() types.Type }); ok {
			t = elem.Elem()
			continue
		}
		break
	}
	named, _ := types.Unalias(t).(*types.Named)
	fields, ok := t.Underlying().(*types.Struct)
	if !ok || named == nil {
		return nil
	}
	var keys []settingsKey
	for i := range fields.NumFields() {
		tag, tagged := reflect.StructTag(fields.Tag(i)).Lookup("yaml")
		if !tagged || tag == "-" {
			continue
		}
		key := path
		if tag != ",inline" {
			key += "." + tag
		}
		if nested := settingsKeys(fields.Field(i).Type(), key); nested != nil {
			keys = append(keys, nested...)
		} else {
			keys = append(keys, settingsKey{key[1:], fieldName(named, fields.Field(i))})
		}
	}
	return keys
}

// fieldName returns a name that identifies a struct field across packages. The *types.Var cannot, because the type
// checker creates a separate object for the field in each importing package.
func fieldName(t *types.Named, field *types.Var) string {
	return t.Obj().Pkg().Path() + "." + t.Obj().Name() + "." + field.Name()
}

// withoutEffect matches the names of functions that only check settings, fill in defaults or read the file.
var withoutEffect = regexp.MustCompile(`^(check|Check|validate|Validate|Default|Unmarshal)`)

// addReadFields adds the names of the fields that the functions in file read. A conversion of a struct to another type
// reads all its fields.
func addReadFields(info *types.Info, file *ast.File, readFields map[string]bool) {
	assigned := map[ast.Expr]bool{} // left sides of assignments, which set a field but do not read it
	ast.Inspect(file, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.ASSIGN {
			for _, left := range a.Lhs {
				assigned[left] = true
			}
		}
		if f, ok := n.(*ast.FuncDecl); ok && withoutEffect.MatchString(f.Name.Name) {
			return false
		}
		if call, ok := n.(*ast.CallExpr); ok && info.Types[call.Fun].IsType() {
			t := info.Types[call.Args[0]].Type
			if named, ok := types.Unalias(t).(*types.Named); ok {
				if fields, ok := t.Underlying().(*types.Struct); ok {
					for field := range fields.Fields() {
						readFields[fieldName(named, field)] = true
					}
				}
			}
		}
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || info.Selections[selector] == nil || info.Selections[selector].Kind() != types.FieldVal {
			return true
		}
		t := info.Selections[selector].Recv()
		index := info.Selections[selector].Index()
		if assigned[selector] {
			index = index[:len(index)-1]
		}
		for _, i := range index {
			if p, ok := t.Underlying().(*types.Pointer); ok {
				t = p.Elem()
			}
			field := t.Underlying().(*types.Struct).Field(i)
			if named, ok := types.Unalias(t).(*types.Named); ok {
				readFields[fieldName(named, field)] = true
			}
			t = field.Type()
		}
		return true
	})
}
