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

// Role is what a token allows.
type Role string

// The roles. Who may operate may view.
const (
	RoleView    Role = "view"
	RoleOperate Role = "operate"
)

// Caller is who asks, and what it may do; without a role, nothing.
type Caller struct {
	Role Role
	Name string // for the log
}

// Route is one operation.
type Route struct {
	Method          string
	Path            string // as in http.ServeMux, with {names}
	Role            Role
	Summary         string
	QueryParameters []QueryParameter
	RequestType,
	ResponseType any // a value of the type of the body and of the answer, for the document; nil if there is none
	ResponseContentType string // of the answer; JSON if it is empty

	serve func(w http.ResponseWriter, r *http.Request) error
}

// QueryParameter is one of a route's query.
type QueryParameter struct{ Name, About string }

// maxBody bounds a request's body: a task file has less than 1 MiB.
const maxBody = 2 << 20

// GetRoute makes a route that answers with what do returns.
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

// EmptyBody is the body of a request that has none.
type EmptyBody struct{}

// PostRoute makes a route that takes a body and answers with what do returns. It needs the role Operate.
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

// StreamRoute makes a route that writes its answer itself, of another type than JSON. After an error in the middle of
// it the connection is cut, so that nobody takes a part for the whole.
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

// countingWriter counts what is written.
type countingWriter struct {
	io.Writer
	writtenBytes int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.writtenBytes += n
	return n, err
}

// WithRole returns the route with another role.
func (r Route) WithRole(role Role) Route {
	r.Role = role
	return r
}

// decodeRequestBody reads a body strictly; an empty one leaves in as it is.
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
		return BadRequest("the body is not what this route takes: %v", err)
	}
	return nil
}

// textRenderer is an answer that may also be shown as text.
type textRenderer interface {
	// Draw returns the text, no line wider than width.
	Draw(width int) string
}

// writeResponse writes JSON, or for a terminal text of the query's width. The daemon draws the text, so that a command
// of another version can show it.
func writeResponse(w http.ResponseWriter, r *http.Request, out any) {
	if d, ok := out.(textRenderer); ok && strings.HasPrefix(r.Header.Get("Accept"), "text/plain") {
		width, err := strconv.Atoi(r.URL.Query().Get("width"))
		if err != nil {
			width = 160
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, d.Draw(width)) // the client may have gone
		return
	}
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(out) // the client may have gone
}

// Error is the answer to a request that was not carried out.
type Error struct {
	Status  int    `json:"-"`
	Problem string `json:"problem"`
	// IsConfigInvalid says that a configuration is wrong, whose lines Problem names.
	IsConfigInvalid bool `json:"wrong,omitempty"`
}

func (e *Error) Error() string { return e.Problem }

// BadRequest is the error of a request that asks for what cannot be.
func BadRequest(format string, args ...any) *Error {
	return &Error{Status: http.StatusBadRequest, Problem: fmt.Sprintf(format, args...)}
}

// Conflict is the error of a request that does not go with what is.
func Conflict(format string, args ...any) *Error {
	return &Error{Status: http.StatusConflict, Problem: fmt.Sprintf(format, args...)}
}

// NotFound is the error of a request for what is not there.
func NotFound(format string, args ...any) *Error {
	return &Error{Status: http.StatusNotFound, Problem: fmt.Sprintf(format, args...)}
}

// toAPIError makes an answer of any error.
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

// RequestAuditor is told of every request that may change something, with the name of who makes it.
type RequestAuditor interface {
	// BeforeRequest is told before it is carried out. An error refuses it.
	BeforeRequest(who string, r *http.Request) error
	// AfterRequest is told how it ended, also where its caller may not make it.
	AfterRequest(who string, r *http.Request, err error)
}

// Handler serves routes. caller returns who makes a request, as [SocketCaller] or [TokenFile.Caller] do. A program
// whose routes change nothing has no witness.
func Handler(routes []Route, caller func(*http.Request) Caller, witness RequestAuditor) http.Handler {
	mux := http.NewServeMux()
	for _, route := range routes {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			c := caller(r)
			err := checkRole(&route, c.Role)
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
				writeErrorResponse(w, toAPIError(err))
			}
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeErrorResponse(w, NotFound("%s has no %s", r.Method, r.URL.Path))
	})
	return mux
}

func checkRole(route *Route, role Role) error {
	switch {
	case role == "":
		return &Error{Status: http.StatusUnauthorized, Problem: "a token is needed: Authorization: Bearer TOKEN"}
	case role != RoleOperate && route.Role == RoleOperate:
		return &Error{Status: http.StatusForbidden, Problem: "this token may only view"}
	}
	return nil
}

func writeErrorResponse(w http.ResponseWriter, e *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	_ = json.NewEncoder(w).Encode(e)
}
