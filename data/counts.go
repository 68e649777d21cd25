package data

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/store"
)

// A value that is not recorded is in no ring. So that `agentd data check` judges a source as the agent does, the
// agent keeps beside the ring how many values of each input it has recorded, and how many it has not and why, since
// its start.

const (
	countsFile    = "counts"
	countsVersion = 1
	maxCounts     = 1 << 20
	// countsEvery is how often the counts are kept while no value is refused, but some were before.
	countsEvery = time.Minute
)

// counts is the content of the file.
type counts struct {
	Since   time.Time     `json:"since"`
	Columns []countedOnce `json:"columns"`
}

type countedOnce struct {
	ColumnReport
	Recent float64 `json:"recent"` // share of the last values that is wrong
}

// keepCounts keeps the counts if they have changed. It costs nothing as long as every value is recorded.
func (r *recorder) keepCounts() error {
	wrong, now := r.log.unusedSoFar(), r.env.Now()
	if wrong == r.keptWrong && (wrong == 0 || now.Sub(r.keptAt) < countsEvery) {
		return nil
	}
	c := counts{Since: r.log.began}
	for _, column := range r.log.columns() {
		c.Columns = append(c.Columns, countedOnce{column, column.recent})
	}
	body, err := json.Marshal(c)
	if err == nil {
		err = r.env.Disk.SaveRecord(filepath.Join(r.env.Dir, countsFile), countsVersion, body)
	}
	if err == nil {
		r.keptWrong, r.keptAt = wrong, now
	}
	return err
}

// forgetCounts removes the counts of an earlier start.
func (r *recorder) forgetCounts() error {
	path := filepath.Join(r.env.Dir, countsFile)
	if _, _, err := r.env.Disk.LoadRecord(path, maxCounts); errors.Is(err, store.ErrNoRecord) {
		return nil
	}
	return r.env.Disk.Remove(path)
}

// counts returns what the agent has counted since its start, of the wanted inputs and of payloads that belong to
// none; of all inputs if wanted is nil. It is nothing if the agent has recorded every value.
func (s *storedRing) counts(wanted []string) (c counts, err error) {
	version, body, err := s.disk.LoadRecord(filepath.Join(s.dir, countsFile), maxCounts)
	if errors.Is(err, store.ErrNoRecord) || err == nil && version != countsVersion {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	for i := range c.Columns {
		c.Columns[i].recent = c.Columns[i].Recent
	}
	c.Columns = slices.DeleteFunc(c.Columns, func(of countedOnce) bool {
		return wanted != nil && of.Name != "" && !slices.Contains(wanted, of.Name)
	})
	return c, err
}
