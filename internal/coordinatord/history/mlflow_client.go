package history

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// mlflowClient is a client of MLflow's REST API, https://mlflow.org/docs/latest/rest-api.html.
type mlflowClient struct {
	ctx      context.Context
	tracking *MLflowTracking
}

// The statuses of a run.
const (
	statusFinished = "FINISHED"
	statusRunning  = "RUNNING"
)

// serverRun is a run in the server's JSON.
type serverRun struct {
	Info struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
		Stage  string `json:"lifecycle_stage"`
	} `json:"info"`
	Data struct {
		Metrics []struct {
			Key string `json:"key"`
		} `json:"metrics"`
		Params []tagOrParam `json:"params"`
	} `json:"data"`
}

// The error codes that are expected replies.
const (
	codeDoesNotExist  = "RESOURCE_DOES_NOT_EXIST"
	codeAlreadyExists = "RESOURCE_ALREADY_EXISTS"
)

// serverError is an error reported by the server.
type serverError struct {
	Code    string `json:"error_code"`
	Message string `json:"message"`
	status  string
	path    string
}

func (r *serverError) Error() string {
	return fmt.Sprintf("%s: %s: %s", r.path, cmp.Or(r.Code, r.status), r.Message)
}

// hasErrorCode reports whether err is a server error with this code.
func hasErrorCode(err error, code string) bool {
	var r *serverError
	return errors.As(err, &r) && r.Code == code
}

// findOrCreateExperiment returns the id of an experiment. It creates the experiment if it does not exist.
func (s mlflowClient) findOrCreateExperiment(name string) (string, error) {
	var got struct {
		Experiment struct {
			ID    string `json:"experiment_id"`
			Stage string `json:"lifecycle_stage"`
		} `json:"experiment"`
	}
	find := func() error {
		return s.get("experiments/get-by-name", url.Values{"experiment_name": {name}}, &got)
	}
	err := find()
	if hasErrorCode(err, codeDoesNotExist) {
		var made struct {
			ID string `json:"experiment_id"`
		}
		if err = s.post("experiments/create", map[string]any{"name": name}, &made); err == nil {
			return made.ID, nil
		}
		if hasErrorCode(err, codeAlreadyExists) { // another process created the experiment first
			err = find()
		}
	}
	if err == nil && got.Experiment.Stage == "deleted" {
		err = fmt.Errorf("the experiment %s is deleted: restore it, or use another experiment", name)
	}
	return got.Experiment.ID, err
}

// findRun returns the run with the first two tags, even if it is deleted. It returns nil if there is no such run.
func (s mlflowClient) findRun(experiment string, tags []tagOrParam) (*serverRun, error) {
	var got struct {
		Runs []serverRun `json:"runs"`
	}
	err := s.post("runs/search", map[string]any{"experiment_ids": []string{experiment}, "run_view_type": "ALL",
		"max_results": 1, "filter": fmt.Sprintf("tags.`%s` = '%s' and tags.`%s` = '%s'", tags[0].Key, tags[0].Value,
			tags[1].Key, tags[1].Value)}, &got)
	if err != nil || len(got.Runs) == 0 {
		return nil, err
	}
	return &got.Runs[0], nil
}

func (s mlflowClient) createRun(experiment, name string, at int64, tags []tagOrParam) (*serverRun, error) {
	var made struct {
		Run serverRun `json:"run"`
	}
	err := s.post("runs/create", map[string]any{"experiment_id": experiment, "run_name": name, "start_time": at,
		"tags": tags}, &made)
	return &made.Run, err
}

func (s mlflowClient) updateRunStatus(id string, finished bool, at int64) error {
	change := map[string]any{"run_id": id, "status": statusRunning}
	if finished {
		change["status"], change["end_time"] = statusFinished, at
	}
	return s.post("runs/update", change, nil)
}

// logBatch sends metrics and parameters of a run in one request. The caller must observe the limits of a batch.
func (s mlflowClient) logBatch(id string, points []metricPoint, params []tagOrParam) error {
	return s.post("runs/log-batch", struct {
		Run     string        `json:"run_id"`
		Metrics []metricPoint `json:"metrics,omitempty"` // the server rejects null
		Params  []tagOrParam  `json:"params,omitempty"`
	}{id, points, params}, nil)
}

// metricPositions returns an iterator over the time and step of each stored value of a metric.
func (s mlflowClient) metricPositions(id, key string) iter.Seq2[metricPointPosition, error] {
	return func(yield func(metricPointPosition, error) bool) {
		q := url.Values{"run_id": {id}, "metric_key": {key},
			"max_results": {maxPointsPerPage}} // without this limit the server returns all values at once
		for {
			var got struct {
				Metrics []struct {
					Time json.Number `json:"timestamp"` // some servers encode the time as a string
					Step json.Number `json:"step"`
				} `json:"metrics"`
				Next string `json:"next_page_token"`
			}
			if err := s.get("metrics/get-history", q, &got); err != nil {
				yield(metricPointPosition{}, err)
				return
			}
			for _, x := range got.Metrics {
				time, _ := strconv.ParseInt(string(x.Time), 10, 64) // an absent number is 0
				step, _ := strconv.ParseInt(string(x.Step), 10, 64)
				if !yield(metricPointPosition{time, step}, nil) {
					return
				}
			}
			if got.Next == "" {
				return
			}
			q.Set("page_token", got.Next)
		}
	}
}

func (s mlflowClient) get(path string, q url.Values, out any) error {
	return s.call(http.MethodGet, path+"?"+q.Encode(), nil, out)
}

func (s mlflowClient) post(path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return s.call(http.MethodPost, path, body, out)
}

// maxPointsPerPage is the maximum number of values per page. Servers with a file store ignore it.
const maxPointsPerPage = "25000"

// maxAnswerBytes is the maximum size of a response in bytes. A typical page of metric values has about 3 MB.
const maxAnswerBytes = 64 << 20

func (s mlflowClient) call(method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(s.ctx, callTime)
	defer cancel()
	where := strings.TrimSuffix(s.tracking.URL, "/") + "/api/2.0/mlflow/" + path
	r, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if s.tracking.Token != "" {
		r.Header.Set("Authorization", "Bearer "+s.tracking.Token)
	}
	answer, err := s.tracking.HTTP.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswerBytes))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		short, _, _ := strings.Cut(where, "?")
		refused := &serverError{status: answer.Status, path: short}
		if json.Unmarshal(text, refused) != nil {
			refused.Message = strings.Join(strings.Fields(string(text[:min(len(text), 200)])), " ")
		}
		return refused
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("unexpected reply from MLflow at %s: %w", where, err)
	}
	return nil
}
