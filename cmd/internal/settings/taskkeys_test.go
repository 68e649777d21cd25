package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// TestOtherKeys wants each field of a task to be told by its key when it differs, and nothing of one that does not.
func TestOtherKeys(t *testing.T) {
	sample := func() wire.Task {
		s := defaultTask()
		s.Name, s.Features, s.Target = "air", []string{"a", "b"}, "y"
		s.Model = spec.Model{Kind: "mlp", Hidden: []int{3}, Activation: "tanh", Risk: "squared", Bias: true}
		s.StepSize = spec.StepSize{Diminishing: true, StrongConvexity: 0.1, Smoothness: 400}
		return s.Wire(true)
	}
	if keys := OtherKeys(sample(), sample()); len(keys) > 0 {
		t.Errorf("equal tasks differ in %v", keys)
	}
	linear, logistic := Task{Model: spec.Model{Kind: "linear"}}, Task{Model: spec.Model{Kind: "logistic"}}
	if keys := OtherKeys(linear.Wire(false), logistic.Wire(false)); !slices.Contains(keys,
		"task.model.kind is linear, configured is logistic") {
		t.Errorf("another kind: %q", keys)
	}
	want := map[string]string{
		"Name": "task.name is air, configured is airX", "Features": "task.features is [a b], configured is [a b X]",
		"Recipe.Inputs":      "task.inputs is [], configured is [{X  []   [] 0s 0s 0}]",
		"Recipe.Grid.Step":   "task.grid.step is 0s, configured is 1ns",
		"Training.BatchSize": "task.batch_size is 32, configured is 33",
		"Training.Budget":    "task.steps.budget is 10s, configured is 10.001s",
		"Training.Gamma":     "task.step_size.smoothness is 400, configured is 400.013",
		"Mixing.Endless":     "task.mixing.server_every is -1, configured is 0",
		"Mixing.Codec":       "task.mixing.codec is raw, configured is rawX",
	}
	fields := 0
	var visit func(path string, index []int, typ reflect.Type)
	visit = func(path string, index []int, typ reflect.Type) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			at, name := append(slices.Clone(index), i), strings.TrimPrefix(path+"."+f.Name, ".")
			if name == "Standardization" || name == "Extra" {
				continue
			}
			if f.Type.Kind() == reflect.Struct {
				visit(name, at, f.Type)
				continue
			}
			fields++
			other := sample()
			change(reflect.ValueOf(&other).Elem().FieldByIndex(at))
			keys := OtherKeys(sample(), other)
			if len(keys) == 0 {
				t.Errorf("a task with another %s differs in no key: give it one in taskKeys", name)
			} else if w := want[name]; w != "" && !slices.Contains(keys, w) {
				t.Errorf("another %s: %q, want %q", name, keys, w)
			}
		}
	}
	visit("", nil, reflect.TypeFor[wire.Task]())
	if fields < 25 {
		t.Errorf("looked at %d fields only", fields)
	}
}

// change gives v another value of its type.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "X")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	case reflect.Slice:
		more := reflect.New(v.Type().Elem()).Elem()
		change(more)
		v.Set(reflect.Append(v, more))
	case reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Struct: // an input
		change(v.Field(0))
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	default:
		panic(fmt.Sprint("no other value of ", v.Type()))
	}
}
