package sources

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/store"
)

// The ring contains only recorded values. The agent therefore stores a counts file in the same folder, with the numbers
// of recorded and rejected values since the agent started, by input and reason. From this file, `agentd data check`
// reports the same share of unusable values as the agent.

const (
	countsFile     = "counts"
	countsVersion  = 1
	maxCountsBytes = 1 << 20
	// countsInterval is the minimum time between two writes of the counts while the number of rejected values does not
	// change.
	countsInterval = time.Minute
)

// savedCountsFile is the content of the counts file.
type savedCountsFile struct {
	CountedSince time.Time          `json:"since"`
	Columns      []savedInputCounts `json:"columns"`
}

// savedInputCounts contains the counts of one input.
type savedInputCounts struct {
	data.ColumnReport
	SavedWrongShare float64 `json:"recent"` // share of wrong values among the most recent ones
}

// saveInputCounts writes the counts file if more values were rejected since the last write, or if any value was
// rejected and countsInterval has passed. As long as no value was rejected, it writes no file.
func (r *readingRecorder) saveInputCounts() error {
	wrong, now := r.stats.unusedTotal(), r.env.Now()
	if wrong == r.savedUnusedCount && (wrong == 0 || now.Sub(r.countsSavedAt) < countsInterval) {
		return nil
	}
	c := savedCountsFile{CountedSince: r.stats.startedAt}
	for _, column := range r.stats.columnReports() {
		c.Columns = append(c.Columns, savedInputCounts{column, column.RecentWrongShare})
	}
	body, err := json.Marshal(c)
	if err == nil {
		err = r.env.Disk.SaveRecord(filepath.Join(r.env.RingFolder, countsFile), countsVersion, body)
	}
	if err == nil {
		r.savedUnusedCount, r.countsSavedAt = wrong, now
	}
	return err
}

// removeCountsFile removes the counts file of an earlier run of the agent.
func (r *readingRecorder) removeCountsFile() error {
	path := filepath.Join(r.env.RingFolder, countsFile)
	if _, _, err := r.env.Disk.LoadRecord(path, maxCountsBytes); errors.Is(err, store.ErrNoRecord) {
		return nil
	}
	return r.env.Disk.Remove(path)
}

// loadSavedCounts returns the counts that the agent has saved in a folder since its start. If wanted is not nil, it
// returns only the counts of these inputs and of payloads that belong to no input. It returns the zero value if the
// file has a different version or does not exist because every value was recorded.
func loadSavedCounts(disk store.Disk, dir string, wanted []string) (c savedCountsFile, err error) {
	version, body, err := disk.LoadRecord(filepath.Join(dir, countsFile), maxCountsBytes)
	if errors.Is(err, store.ErrNoRecord) || err == nil && version != countsVersion {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	for i := range c.Columns {
		c.Columns[i].RecentWrongShare = c.Columns[i].SavedWrongShare
	}
	c.Columns = slices.DeleteFunc(c.Columns, func(of savedInputCounts) bool {
		return wanted != nil && of.Name != "" && !slices.Contains(wanted, of.Name)
	})
	return c, err
}
