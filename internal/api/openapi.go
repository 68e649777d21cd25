package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// object is a JSON object of the document; json.Marshal sorts its keys.
type object = map[string]any

// OpenAPIDocument returns the OpenAPI 3.0 description of routes, as JSON.
func OpenAPIDocument(title, version string, routes []Route) []byte {
	d := openAPIBuilder{schemas: object{}}
	refused := d.content("", Error{})
	paths := map[string]object{}
	for _, r := range routes {
		if paths[r.Path] == nil {
			paths[r.Path] = object{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = d.operation(&r, refused)
	}
	text, err := json.MarshalIndent(object{
		"openapi": "3.0.3",
		"info":    object{"title": title, "version": version, "license": object{"name": "Apache-2.0"}},
		"paths":   paths,
		"components": object{"schemas": d.schemas, "securitySchemes": object{"token": object{"type": "http",
			"scheme": "bearer", "description": "Over TCP; the socket in the state folder needs none."}}},
		"security": []object{{"token": []string{}}},
	}, "", "  ")
	if err != nil {
		panic(err) // maps, lists, texts and bools always have an encoding
	}
	return append(text, '\n')
}

type openAPIBuilder struct{ schemas object }

func (d *openAPIBuilder) operation(r *Route, refused object) object {
	op := object{"summary": r.Summary, "description": "Needs the role " + string(r.Role) + ".",
		"responses": object{
			"200":     object{"description": "Done.", "content": d.content(r.ResponseContentType, r.ResponseType)},
			"default": object{"description": "It was not carried out.", "content": refused},
		}}
	var parameters []object
	for _, part := range strings.Split(r.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parameters = append(parameters, parameter(strings.TrimSuffix(name, "}"), "path", true, ""))
		}
	}
	for _, q := range r.QueryParameters {
		parameters = append(parameters, parameter(q.Name, "query", false, q.About))
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if r.RequestType != nil {
		op["requestBody"] = object{"content": d.content("", r.RequestType)}
	}
	return op
}

func parameter(name, in string, required bool, about string) object {
	p := object{"name": name, "in": in, "required": required, "schema": object{"type": "string"}}
	if about != "" {
		p["description"] = about
	}
	return p
}

// content describes a body: of a type of its own, or JSON of the value's type.
func (d *openAPIBuilder) content(contentType string, value any) object {
	if contentType != "" {
		return object{contentType: object{"schema": object{"type": "string", "format": "binary"}}}
	}
	return object{"application/json": object{"schema": d.schema(reflect.TypeOf(value))}}
}

// schema describes a type as encoding/json writes it. Structs are described once, by name.
func (d *openAPIBuilder) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return d.schema(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return object{"type": "string", "format": "byte"}
	case t.Kind() == reflect.Slice:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case t.Kind() == reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case t.Kind() == reflect.Struct:
		return d.namedSchema(t)
	case t.Kind() == reflect.Bool:
		return object{"type": "boolean"}
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return object{"type": "number"}
	case t.Kind() == reflect.String:
		return object{"type": "string"}
	}
	return object{"type": "integer"}
}

func (d *openAPIBuilder) namedSchema(t reflect.Type) object {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if d.schemas[name] == nil {
		properties, required := object{}, []string{}
		d.schemas[name] = object{} // for one that holds itself
		for i := range t.NumField() {
			f := t.Field(i)
			key, more, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "-" || !f.IsExported() {
				continue
			}
			if properties[key] = d.schema(f.Type); !strings.Contains(more, "omit") {
				required = append(required, key)
			}
		}
		s := object{"type": "object", "properties": properties}
		if len(required) > 0 {
			s["required"] = required
		}
		d.schemas[name] = s
	}
	return object{"$ref": "#/components/schemas/" + name}
}

// WithOpenAPIRoute returns the routes and one more, which answers with their description.
func WithOpenAPIRoute(title, version string, routes []Route) []Route {
	var text []byte
	all := append(routes, Route{Method: http.MethodGet, Path: "/v1/openapi.json", Role: RoleView,
		Summary: "This description.", ResponseContentType: "application/json",
		serve: func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text) // the client may have gone
			return nil
		}})
	text = OpenAPIDocument(title, version, all)
	return all
}
