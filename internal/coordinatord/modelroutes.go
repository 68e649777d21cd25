package coordinatord

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
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
	version, err := strconv.ParseUint(r.PathValue("version"), 10, 64)
	if err != nil {
		return api.BadRequest("%q is not a valid version", r.PathValue("version"))
	}
	file, err := models.Get(version)
	if err != nil {
		return api.NotFound("model %d/%d: %v", run, version, err)
	}
	_, err = w.Write(file)
	return err
}
