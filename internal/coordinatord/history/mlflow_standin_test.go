package history

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// standIn is a fake MLflow server. It keeps all logged values, including duplicates.
type standIn struct {
	t           *testing.T
	mu          sync.Mutex
	away        bool   // the server does not answer
	creates     int    // number of run creations that get no answer
	cut         bool   // the next batch is stored, but its answer is lost
	token       string // expected bearer token
	experiments []string
	runs        []*runThere
	calls       int
	page        int // number of values per page of a metric's history
}

type runThere struct {
	experiment, id, name, status, stage string
	start, end                          int64
	tags, params                        map[string]string
	points                              []metricPoint
}

// ServeHTTP implements http.Handler.
func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if r.Header.Get("Authorization") != s.token {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	path, known := strings.CutPrefix(r.URL.Path, "/api/2.0/mlflow/")
	do := map[string]func(r *http.Request) (any, string){
		"GET experiments/get-by-name": s.getExperiment, "POST experiments/create": s.makeExperiment,
		"POST runs/search": s.searchRuns, "POST runs/create": s.makeRun, "POST runs/update": s.updateRun,
		"POST runs/log-batch": s.logBatch, "GET metrics/get-history": s.history,
	}[r.Method+" "+path]
	refused := path == "runs/create" && s.creates > 0
	if refused {
		s.creates--
	}
	if s.away || refused || !known || do == nil {
		http.Error(w, "no such page", http.StatusBadGateway)
		return
	}
	out, code := do(r)
	if code != "" {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]any{"error_code": code, "message": fmt.Sprint(out)}
	}
	_ = json.NewEncoder(w).Encode(out)
}

// body decodes a request strictly: an undocumented key is an error.
func (s *standIn) body(r *http.Request, in any) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		s.t.Errorf("%s: %v", r.URL.Path, err)
	}
}

func (s *standIn) getExperiment(r *http.Request) (any, string) {
	name := r.FormValue("experiment_name")
	i := slices.Index(s.experiments, name)
	if i < 0 {
		return "no experiment " + name, codeDoesNotExist
	}
	return map[string]any{"experiment": map[string]any{"experiment_id": strconv.Itoa(i), "name": name,
		"lifecycle_stage": "active"}}, ""
}

func (s *standIn) makeExperiment(r *http.Request) (any, string) {
	var in struct{ Name string }
	s.body(r, &in)
	if slices.Contains(s.experiments, in.Name) {
		return "twice", codeAlreadyExists
	}
	s.experiments = append(s.experiments, in.Name)
	return map[string]any{"experiment_id": strconv.Itoa(len(s.experiments) - 1)}, ""
}

func (s *standIn) searchRuns(r *http.Request) (any, string) {
	var in struct {
		IDs    []string `json:"experiment_ids"`
		Filter string   `json:"filter"`
		View   string   `json:"run_view_type"`
		Most   int      `json:"max_results"`
	}
	s.body(r, &in)
	var found []any
	for _, x := range s.runs {
		matches := fmt.Sprintf("tags.`fedmesh.federation` = '%s' and tags.`fedmesh.run` = '%s'",
			x.tags["fedmesh.federation"], x.tags["fedmesh.run"]) == in.Filter
		if matches && slices.Contains(in.IDs, x.experiment) && (x.stage == "active" || in.View == "ALL") {
			found = append(found, x.described())
		}
	}
	return map[string]any{"runs": found[:min(len(found), in.Most)]}, ""
}

func (x *runThere) described() map[string]any {
	params, metrics := []tagOrParam{}, []any{}
	for k, v := range x.params {
		params = append(params, tagOrParam{k, v})
	}
	last := map[string]metricPoint{}
	for _, p := range x.points {
		last[p.Key] = p
	}
	for _, p := range last {
		metrics = append(metrics, p)
	}
	return map[string]any{"info": map[string]any{"run_id": x.id, "status": x.status, "lifecycle_stage": x.stage},
		"data": map[string]any{"metrics": metrics, "params": params}}
}

func (s *standIn) makeRun(r *http.Request) (any, string) {
	var in struct {
		Experiment string       `json:"experiment_id"`
		Name       string       `json:"run_name"`
		Start      int64        `json:"start_time"`
		Tags       []tagOrParam `json:"tags"`
	}
	s.body(r, &in)
	x := &runThere{experiment: in.Experiment, id: fmt.Sprint("run", len(s.runs)), name: in.Name, status: statusRunning,
		stage: "active", start: in.Start, tags: map[string]string{}, params: map[string]string{}}
	for _, p := range in.Tags {
		x.tags[p.Key] = p.Value
	}
	s.runs = append(s.runs, x)
	return map[string]any{"run": x.described()}, ""
}

func (s *standIn) find(id string) *runThere {
	i := slices.IndexFunc(s.runs, func(x *runThere) bool { return x.id == id })
	if i < 0 {
		s.t.Fatalf("no run %s", id)
	}
	return s.runs[i]
}

func (s *standIn) updateRun(r *http.Request) (any, string) {
	var in struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
		End    int64  `json:"end_time"`
	}
	s.body(r, &in)
	x := s.find(in.ID)
	x.status, x.end = in.Status, in.End
	return map[string]any{}, ""
}

func (s *standIn) logBatch(r *http.Request) (any, string) {
	var in struct {
		ID      string        `json:"run_id"`
		Metrics []metricPoint `json:"metrics"`
		Params  []tagOrParam  `json:"params"`
	}
	s.body(r, &in)
	x := s.find(in.ID)
	if r.ContentLength > 1<<20 || len(in.Metrics) > 1000 || len(in.Params) > 100 ||
		len(in.Metrics)+len(in.Params) > 1000 || x.stage != "active" {
		return "too much, or deleted", "INVALID_PARAMETER_VALUE"
	}
	for _, p := range in.Params {
		if was, there := x.params[p.Key]; there && was != p.Value || len(p.Value) > 6000 {
			return "the parameter " + p.Key, "INVALID_PARAMETER_VALUE"
		}
		x.params[p.Key] = p.Value
	}
	x.points = append(x.points, in.Metrics...)
	if s.cut && len(in.Metrics) > 0 {
		s.cut = false
		return "the answer is lost", "INTERNAL_ERROR"
	}
	return map[string]any{}, ""
}

func (s *standIn) history(r *http.Request) (any, string) {
	var all []metricPoint
	for _, p := range s.find(r.FormValue("run_id")).points {
		if p.Key == r.FormValue("metric_key") {
			all = append(all, p)
		}
	}
	from, _ := strconv.Atoi(r.FormValue("page_token")) // an absent number is 0
	most, err := strconv.Atoi(r.FormValue("max_results"))
	if err != nil || most > 25_000 {
		s.t.Errorf("max_results is %q: MLflow would send all at once, or nothing", r.FormValue("max_results"))
		most = s.page
	}
	to := min(from+min(s.page, most), len(all))
	answer := map[string]any{"metrics": all[from:to]}
	if to < len(all) {
		answer["next_page_token"] = strconv.Itoa(to)
	}
	return answer, ""
}

// doubled fails the test if a value was logged twice.
func (s *standIn) doubled() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.runs {
		seen := map[metricPoint]bool{}
		for _, p := range x.points {
			if seen[p] {
				s.t.Errorf("%s has twice %+v", x.name, p)
			}
			seen[p] = true
		}
	}
}

// values returns the number of values in all runs.
func (s *standIn) values() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.runs {
		n += len(x.points)
	}
	return n
}

// RoundTrip implements http.RoundTripper without a network.
func (s *standIn) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	r.ContentLength = max(r.ContentLength, 0)
	s.ServeHTTP(w, r)
	return w.Result(), nil
}
