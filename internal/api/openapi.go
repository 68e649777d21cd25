package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// jsonObject is a JSON object of the document. json.Marshal sorts its keys.
type jsonObject = map[string]any

// OpenAPIDocument returns the OpenAPI 3.0 description of routes, as JSON.
func OpenAPIDocument(title, version string, routes []Route) []byte {
	d := openAPIBuilder{schemas: jsonObject{}}
	refused := d.describeContent("", Error{})
	paths := map[string]jsonObject{}
	for _, r := range routes {
		if paths[r.Path] == nil {
			paths[r.Path] = jsonObject{}
		}
		paths[r.Path][strings.ToLower(r.Method)] = d.describeOperation(&r, refused)
	}
	text, err := json.MarshalIndent(jsonObject{
		"openapi": "3.0.3",
		"info":    jsonObject{"title": title, "version": version, "license": jsonObject{"name": "Apache-2.0"}},
		"paths":   paths,
		"components": jsonObject{"schemas": d.schemas, "securitySchemes": jsonObject{"token": jsonObject{"type": "http",
			"scheme": "bearer", "description": "The token is required over TCP, but not on the socket in the state " +
				"folder."}}},
		"security": []jsonObject{{"token": []string{}}},
	}, "", "  ")
	if err != nil {
		panic(err) // cannot happen: the document contains only maps, lists, strings and bools
	}
	return append(text, '\n')
}

type openAPIBuilder struct{ schemas jsonObject }

func (d *openAPIBuilder) describeOperation(r *Route, refused jsonObject) jsonObject {
	op := jsonObject{"summary": r.Summary, "description": "Requires the role " + string(r.Role) + ".",
		"responses": jsonObject{
			"200": jsonObject{"description": "Done.", "content": d.describeContent(r.ResponseContentType,
				r.ResponseType)},
			"default": jsonObject{"description": "The request was not carried out.", "content": refused},
		}}
	var parameters []jsonObject
	for _, part := range strings.Split(r.Path, "/") {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			parameters = append(parameters, describeParameter(strings.TrimSuffix(name, "}"), "path", true, ""))
		}
	}
	for _, q := range r.QueryParameters {
		parameters = append(parameters, describeParameter(q.Name, "query", false, q.About))
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if r.RequestType != nil {
		op["requestBody"] = jsonObject{"content": d.describeContent("", r.RequestType)}
	}
	return op
}

func describeParameter(name, in string, required bool, about string) jsonObject {
	p := jsonObject{"name": name, "in": in, "required": required, "schema": jsonObject{"type": "string"}}
	if about != "" {
		p["description"] = about
	}
	return p
}

// describeContent describes a body: binary with the given content type, or JSON of the value's type.
func (d *openAPIBuilder) describeContent(contentType string, value any) jsonObject {
	if contentType != "" {
		return jsonObject{contentType: jsonObject{"schema": jsonObject{"type": "string", "format": "binary"}}}
	}
	return jsonObject{"application/json": jsonObject{"schema": d.describeType(reflect.TypeOf(value))}}
}

// describeType returns the JSON schema of a Go type. A struct is described once and then referenced by name.
func (d *openAPIBuilder) describeType(t reflect.Type) jsonObject {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return jsonObject{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return d.describeType(t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return jsonObject{"type": "string", "format": "byte"}
	case t.Kind() == reflect.Slice:
		return jsonObject{"type": "array", "items": d.describeType(t.Elem())}
	case t.Kind() == reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": d.describeType(t.Elem())}
	case t.Kind() == reflect.Struct:
		return d.describeStructByName(t)
	case t.Kind() == reflect.Bool:
		return jsonObject{"type": "boolean"}
	case t.Kind() == reflect.Float32, t.Kind() == reflect.Float64:
		return jsonObject{"type": "number"}
	case t.Kind() == reflect.String:
		return jsonObject{"type": "string"}
	}
	return jsonObject{"type": "integer"}
}

func (d *openAPIBuilder) describeStructByName(t reflect.Type) jsonObject {
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if d.schemas[name] == nil {
		properties, required := jsonObject{}, []string{}
		d.schemas[name] = jsonObject{} // placeholder for recursive types
		for i := range t.NumField() {
			f := t.Field(i)
			key, more, _ := strings.Cut(f.Tag.Get("json"), ",")
			if key == "-" || !f.IsExported() {
				continue
			}
			if properties[key] = d.describeType(f.Type); !strings.Contains(more, "omit") {
				required = append(required, key)
			}
		}
		s := jsonObject{"type": "object", "properties": properties}
		if len(required) > 0 {
			s["required"] = required
		}
		d.schemas[name] = s
	}
	return jsonObject{"$ref": "#/components/schemas/" + name}
}

// WithOpenAPIRoute returns the routes and an additional route that serves their description.
func WithOpenAPIRoute(title, version string, routes []Route) []Route {
	var text []byte
	all := append(routes, Route{Method: http.MethodGet, Path: "/v1/openapi.json", Role: RoleView,
		Summary: "Return this description.", ResponseContentType: "application/json",
		serve: func(w http.ResponseWriter, _ *http.Request) error {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(text) // the client may have disconnected
			return nil
		}})
	text = OpenAPIDocument(title, version, all)
	return all
}
