package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/fedmesh/fedmesh/internal/config"
)

// Role is a set of permissions granted by a token.
type Role string

// The roles. RoleOperate includes RoleView.
const (
	RoleView    Role = "view"
	RoleOperate Role = "operate"
)

// Caller identifies the sender of a request and its role. Without a role, all requests are denied.
type Caller struct {
	Role Role
	Name string // name for the log
	// IsAnonymous is set if the caller has shown neither a token nor a certificate, and is not connected to the Unix
	// socket.
	IsAnonymous bool
	// DeniedBecause explains why the caller, who would otherwise have the role operate, has only the role view.
	DeniedBecause string
}

// Route is one operation of the API.
type Route struct {
	Method          string
	Path            string // pattern for http.ServeMux, with {names}
	Role            Role
	Summary         string
	QueryParameters []QueryParameter
	RequestType,
	// values with the types of the request body and the response, for the OpenAPI document; nil if there is none
	ResponseType any
	ResponseContentType string // content type of the response; empty for JSON
	RequiresName        bool   // anonymous callers are denied

	serve func(w http.ResponseWriter, r *http.Request) error
}

// QueryParameter is a query parameter of a route.
type QueryParameter struct{ Name, About string }

// maxBody is the maximum size of a request body in bytes. The largest valid body, a task file, is smaller than 1 MiB.
const maxBody = 2 << 20

// GetRoute returns a GET route that responds with the result of do as JSON. The caller needs RoleView.
func GetRoute[Out any](path, summary string, do func(r *http.Request) (Out, error), query ...QueryParameter) Route {
	var out Out
	return Route{Method: http.MethodGet, Path: path, Role: RoleView, Summary: summary, QueryParameters: query,
		ResponseType: out,
		serve: func(w http.ResponseWriter, r *http.Request) error {
			out, err := do(r)
			if err != nil {
				return err
			}
			writeResponse(w, r, out)
			return nil
		}}
}

// EmptyBody is the body type of requests without a body.
type EmptyBody struct{}

// PostRoute returns a POST route that decodes the JSON request body, passes it to do, and responds with the result. The
// caller needs RoleOperate.
func PostRoute[In, Out any](path, summary string, do func(r *http.Request, in In) (Out, error)) Route {
	var in In
	var out Out
	return Route{Method: http.MethodPost, Path: path, Role: RoleOperate, Summary: summary, RequestType: in,
		ResponseType: out,
		serve: func(w http.ResponseWriter, r *http.Request) error {
			var in In
			if err := decodeRequestBody(r, &in); err != nil {
				return err
			}
			out, err := do(r, in)
			if err != nil {
				return err
			}
			writeResponse(w, r, out)
			return nil
		}}
}

// StreamRoute returns a GET route whose function do writes a response of the given content type. If do fails after it
// has written data, the connection is aborted, so the client does not mistake a partial response for a complete one.
func StreamRoute(path, summary, contentType string, do func(w io.Writer, r *http.Request) error) Route {
	return Route{Method: http.MethodGet, Path: path, Role: RoleView, Summary: summary, ResponseContentType: contentType,
		serve: func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Type", contentType)
			counted := &countingWriter{Writer: w}
			err := do(counted, r)
			if err != nil && counted.writtenBytes > 0 {
				panic(http.ErrAbortHandler)
			}
			return err
		}}
}

type countingWriter struct {
	io.Writer
	writtenBytes int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.writtenBytes += n
	return n, err
}

// WithRole returns a copy of the route that requires the given role.
func (r Route) WithRole(role Role) Route {
	r.Role = role
	return r
}

// WithName returns a copy of the route that anonymous callers may not use.
func (r Route) WithName() Route {
	r.RequiresName = true
	return r
}

// decodeRequestBody decodes a JSON request body into in and rejects unknown fields. An empty body leaves in unchanged.
func decodeRequestBody(r *http.Request, in any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return &Error{Status: http.StatusRequestEntityTooLarge, Problem: err.Error()}
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return BadRequest("invalid request body: %v", err)
	}
	return nil
}

// textRenderer is a response that can also be rendered as text.
type textRenderer interface {
	// Draw returns the text with lines of at most width characters.
	Draw(width int) string
}

// writeResponse writes the response as JSON or, if the client accepts plain text, as text with the requested width.
// Rendering in the daemon lets a command-line program of a different version print the text.
func writeResponse(w http.ResponseWriter, r *http.Request, out any) {
	if d, ok := out.(textRenderer); ok && strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
		width, err := strconv.Atoi(r.URL.Query().Get("width"))
		if err != nil {
			width = 160
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, d.Draw(width)) // the client may have disconnected
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(out) // the client may have disconnected
}

// Error is the response to a request that failed.
type Error struct {
	Status  int    `json:"-"`
	Problem string `json:"problem"`
	// IsConfigInvalid reports that Problem lists the invalid lines of a configuration.
	IsConfigInvalid bool `json:"wrong,omitempty"`
}

func (e *Error) Error() string { return e.Problem }

// BadRequest returns an Error with status 400 for an invalid request.
func BadRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Problem: fmt.Sprintf(format, args...)}
}

// Conflict returns an Error with status 409 for a request that is not possible in the current state of the daemon.
func Conflict(format string, args ...any) *Error {
	return &Error{Status: http.StatusConflict, Problem: fmt.Sprintf(format, args...)}
}

// NotFound returns an Error with status 404 for a resource that does not exist.
func NotFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Problem: fmt.Sprintf(format, args...)}
}

// toAPIError converts any error to an *Error.
func toAPIError(err error) *Error {
	var known *Error
	var wrong *config.Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &wrong):
		return &Error{http.StatusUnprocessableEntity, err.Error(), true}
	}
	return &Error{Status: http.StatusInternalServerError, Problem: err.Error()}
}

// RequestAuditor is notified of every request that may change something, with the name of the caller.
type RequestAuditor interface {
	// BeforeRequest is called before a request is executed. An error rejects the request.
	BeforeRequest(who string, r *http.Request) error
	// AfterRequest is called with the result of a request, including a denial.
	AfterRequest(who string, r *http.Request, err error)
}

// Handler returns an HTTP handler for the routes. The function caller identifies the sender of each request (see
// [SocketCaller] and package console), and witness, which may be nil for read-only routes, is notified
// of the requests.
func Handler(routes []Route, caller func(*http.Request) Caller, witness RequestAuditor) http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			c := caller(r)
			err := checkCaller(&route, c)
			changes := route.Role == RoleOperate && witness != nil
			if err == nil && changes {
				err = witness.BeforeRequest(c.Name, r)
			}
			if err == nil {
				err = route.serve(w, r)
			}
			if changes {
				witness.AfterRequest(c.Name, r, err)
			}
			if err != nil {
				WriteError(w, toAPIError(err))
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, NotFound("unknown route: %s %s", r.Method, r.URL.Path))
	})
	return mux
}

// ErrTokenRequired is the response to a caller without a role.
var ErrTokenRequired = &Error{Status: http.StatusUnauthorized, Problem: "token required: send the header " +
	"Authorization: Bearer TOKEN, or log in on the console's page"}

func checkCaller(route *Route, c Caller) error {
	switch {
	case c.Role == "":
		return ErrTokenRequired
	case c.IsAnonymous && route.RequiresName:
		return &Error{Status: http.StatusForbidden, Problem: "this request requires a token: set console.tokens_file " +
			"on the coordinator"}
	case c.Role != RoleOperate && route.Role == RoleOperate && c.DeniedBecause != "":
		return &Error{Status: http.StatusForbidden, Problem: c.DeniedBecause}
	case c.Role != RoleOperate && route.Role == RoleOperate:
		return &Error{Status: http.StatusForbidden, Problem: "permission denied: the caller has the role view, and " +
			"the request requires the role operate"}
	}
	return nil
}

// WriteError writes the response to a request that failed.
func WriteError(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e)
}
