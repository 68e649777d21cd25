package coordinatorsettings

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/wire"
)

// RootDocuments returns the root documents of the federation on disk, from oldest to newest. It returns none if no root
// is configured. The first one is enrol.root_file. Later ones were installed into the state folder.
func (s *ConfigFile) RootDocuments() (all []wire.RootDocument, err error) {
	if s.Enrolment.RootFile == "" {
		return nil, nil
	}
	first, err := settings.ReadRootDocument(s.Enrolment.RootFile, s.Federation)
	if err != nil {
		return nil, &spec.FieldError{Key: "enrol.root_file", Problem: explainMissingFile(err).Error()}
	}
	// devices with an earlier version need each intermediate version
	for v := wire.FirstRootVersion + 1; v < first.Version; v++ {
		d, err := settings.ReadRootDocument(filepath.Join(s.StateDir, runs.RootDocumentFile(v)), s.Federation)
		if err != nil {
			all = nil // devices cannot skip a missing version
			continue
		}
		all = append(all, d)
	}
	for all = append(all, first); ; {
		held := &all[len(all)-1]
		path := filepath.Join(s.StateDir, runs.RootDocumentFile(held.Version+1))
		d, err := settings.ReadRootDocument(path, s.Federation)
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err == nil {
			err = d.CheckSuccession(held)
		}
		if err != nil {
			return nil, &spec.FieldError{Key: "state_dir", Problem: fmt.Sprintf("%s: %v; remove this file, and "+
				"install the same version of the root document again with `coordinator root install FILE`", path, err)}
		}
		all = append(all, d)
	}
}

// CheckKeyMayAnnounce returns an error if the root document d does not name the coordinator key.
func CheckKeyMayAnnounce(d *wire.RootDocument, key ed25519.PublicKey) error {
	if slices.Contains(d.CoordinatorKeys(), wire.SigningPublicKey(key)) {
		return nil
	}
	return fmt.Errorf("version %d of the root document does not contain this coordinator's key (%s): set "+
		"identity.key_file to a key that it contains, or install a document that contains this key", d.Version,
		keys.FormatPublic(key))
}
