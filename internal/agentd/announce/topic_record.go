package announce

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/fedmesh/fedmesh/store"
)

// topicsFile is the file with the topics of retained announcements.
var topicsFile = &store.StateFile{Name: "announced", Version: 1, MaxBytes: 64 << 10,
	LossConsequence: "announcements of earlier settings or targets remain on the site's broker"}

// topicRecord contains the topics on which the device has retained messages on the site's broker. It is saved before
// the messages are published, so that a later start can delete them.
type topicRecord struct {
	dir       string
	Device    []string `json:"device"`    // topics of the device's announcements
	Forecasts []string `json:"forecasts"` // topics of the announcements and states of its forecasts
	Obsolete  []string `json:"obsolete"`  // topics that must be deleted
}

func (r *topicRecord) load() error {
	body, err := store.LocalDisk.LoadStateFile(r.dir, topicsFile)
	if errors.Is(err, store.ErrNoRecord) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(body, r)
	}
	return err
}

func (r *topicRecord) save() error {
	body, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return store.LocalDisk.SaveStateFile(r.dir, topicsFile, body)
}

// setDevice sets the topics of the device's announcements. If they have changed, the settings have changed, and the
// announcements of forecasts are obsolete too. setDevice reports whether the record has changed.
func (r *topicRecord) setDevice(topics []string) (changed bool) {
	if slices.Equal(topics, r.Device) {
		return false
	}
	r.Obsolete = append(append(r.Obsolete, r.Device...), r.Forecasts...)
	r.Device, r.Forecasts = topics, nil
	r.cleanObsolete()
	return true
}

// setForecasts sets the topics of the announcements and states of forecasts. setForecasts reports whether the record
// has changed.
func (r *topicRecord) setForecasts(topics []string) (changed bool) {
	if slices.Equal(topics, r.Forecasts) {
		return false
	}
	r.Obsolete = append(r.Obsolete, r.Forecasts...)
	r.Forecasts = topics
	r.cleanObsolete()
	return true
}

// removeObsolete removes deleted topics. removeObsolete reports whether the record has changed.
func (r *topicRecord) removeObsolete(deleted []string) (changed bool) {
	before := len(r.Obsolete)
	r.Obsolete = slices.DeleteFunc(r.Obsolete, func(t string) bool { return slices.Contains(deleted, t) })
	return len(r.Obsolete) < before
}

// cleanObsolete removes topics in use and duplicates from the obsolete topics.
func (r *topicRecord) cleanObsolete() {
	r.Obsolete = slices.DeleteFunc(r.Obsolete, func(t string) bool {
		return slices.Contains(r.Device, t) || slices.Contains(r.Forecasts, t)
	})
	slices.Sort(r.Obsolete)
	r.Obsolete = slices.Compact(r.Obsolete)
}
