package coordinatord

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/modelfile"
	"github.com/fedmesh/fedmesh/modelfile/export"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// StoredModel is a model on disk.
type StoredModel struct {
	Version            uint64 `json:"version"`
	Bytes              int64  `json:"bytes"`
	Hash               string `json:"hash"`
	IsCurrentBaseModel bool   `json:"present,omitempty"` // base model of the current rounds
}

// openRunModels opens the models of the run named in the request.
func (f *Federation) openRunModels(r *http.Request) (*store.ModelFolder, uint64, error) {
	run, err := strconv.ParseUint(r.PathValue("run"), 10, 64)
	if err != nil {
		return nil, 0, api.BadRequest("%q is not a valid run number", r.PathValue("run"))
	}
	models, err := runs.OpenModelsOfRun(f.stateDir, wire.RunID(run))
	if err != nil {
		return nil, 0, api.NotFound("run %d has no models", run)
	}
	return models, run, nil
}

func (f *Federation) listModels(r *http.Request) ([]StoredModel, error) {
	models, run, err := f.openRunModels(r)
	if err != nil {
		return nil, err
	}
	_, record, err := runs.OpenModelsOfCurrentRun(f.stateDir)
	if err != nil {
		return nil, err
	}
	list, _ := models.List() // List returns only undamaged models
	all := []StoredModel{}
	for _, m := range list {
		present := uint64(record.Run) == run && record.Plan.BaseModel.IsSet() &&
			uint64(record.Plan.BaseModelVersion) == m.Version
		all = append(all, StoredModel{m.Version, m.Size, hex.EncodeToString(m.Digest[:]), present})
	}
	return all, nil
}

// modelRoute returns the route that downloads a model.
func (f *Federation) modelRoute() api.Route {
	r := api.StreamRoute("/v1/runs/{run}/models/{version}", "Return a model in the safetensors format, or in another.",
		"application/octet-stream", f.writeModel).WithName()
	r.QueryParameters = []api.QueryParameter{{Name: "format", About: "safetensors (default), onnx or c"}}
	return r
}

// compareModels compares two models of a run, tensor by tensor.
func (f *Federation) compareModels(r *http.Request) (c modelfile.Comparison, err error) {
	models, run, err := f.openRunModels(r)
	if err != nil {
		return c, err
	}
	before, err := readModelFile(models, run, r.PathValue("version"))
	if err != nil {
		return c, err
	}
	after, err := readModelFile(models, run, r.PathValue("other"))
	if err != nil {
		return c, err
	}
	return modelfile.Compare(before, after)
}

func readModelFile(models *store.ModelFolder, run uint64, version string) ([]byte, error) {
	number, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return nil, api.BadRequest("%q is not a valid version", version)
	}
	file, err := models.Get(number)
	if err != nil {
		return nil, api.NotFound("model %d/%d: %v", run, number, err)
	}
	return file, nil
}

// historySampleRoute returns the route for charts of a run of any length.
func (f *Federation) historySampleRoute() api.Route {
	return api.GetRoute("/v1/history/sample", "Return finished rounds of the newest run, evenly spaced over the run.",
		func(r *http.Request) ([]runs.HistoryEntry, error) {
			lines := 1000
			if s := r.FormValue("lines"); s != "" {
				var err error
				if lines, err = strconv.Atoi(s); err != nil || lines < 1 || lines > 10_000 {
					return nil, api.BadRequest("lines must be between 1 and 10000, but is %q", s)
				}
			}
			all, err := runs.SampleHistory(f.stateDir, lines)
			for i := range all {
				all[i].AuditHead = nil
			}
			return append([]runs.HistoryEntry{}, all...), err
		}, api.QueryParameter{Name: "lines", About: "number of rounds, from 1 to 10000; default: 1000"})
}

// historyRoute returns the route that streams the history from the state folder.
func (f *Federation) historyRoute() api.Route {
	r := api.StreamRoute("/v1/history", "Return the finished rounds, oldest first, one JSON object per line.",
		"application/x-ndjson", f.writeHistory)
	r.QueryParameters = []api.QueryParameter{{Name: "run", About: "only rounds of the run with this number"}}
	return r
}

func (f *Federation) writeHistory(w io.Writer, r *http.Request) error {
	var run uint64
	if s := r.FormValue("run"); s != "" {
		var err error
		if run, err = strconv.ParseUint(s, 10, 64); err != nil {
			return api.BadRequest("%q is not a valid run number", s)
		}
	}
	lines := json.NewEncoder(w)
	for e, err := range runs.ReadHistory(f.stateDir) {
		var file *fs.PathError
		switch {
		case errors.Is(err, fs.ErrNotExist): // no round has ended yet
			return nil
		case errors.As(err, &file):
			return err
		case err != nil, run > 0 && uint64(e.Run) != run: // skip damaged lines and other runs
		default:
			if err := lines.Encode(&e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Federation) writeModel(w io.Writer, r *http.Request) error {
	models, run, err := f.openRunModels(r)
	if err != nil {
		return err
	}
	file, err := readModelFile(models, run, r.PathValue("version"))
	if err != nil {
		return err
	}
	if format := cmp.Or(r.FormValue("format"), "safetensors"); format != "safetensors" {
		m, err := modelfile.Decode(file)
		if err == nil {
			file, err = export.Encode(export.Format(format), m)
		}
		if err != nil {
			return api.Conflict("cannot write the model as %s: %v", format, err)
		}
	}
	_, err = w.Write(file)
	return err
}
