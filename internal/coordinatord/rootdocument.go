package coordinatord

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/internal/api"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/daemon"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

type (
	// RootInstallRequest contains the root document to be installed, in base64.
	RootInstallRequest struct {
		Document []byte `json:"document"`
	}
	// RootInstalled is the response with the version of the root document that is now in effect.
	RootInstalled struct {
		Version uint32 `json:"version"`
	}
)

// rootDocumentInstallRoute returns the route that installs the next root document.
func (f *Federation) rootDocumentInstallRoute() api.Route {
	return api.PostRoute("/v1/root", "Install the next root document. Devices receive it from the broker.",
		func(r *http.Request, n RootInstallRequest) (RootInstalled, error) {
			ctx, cancel := context.WithTimeout(r.Context(), daemon.CommandTimeout)
			defer cancel()
			return f.enrolment.installRootDocument(ctx, n.Document)
		})
}

// InstallRootDocument writes the next root document into the state folder, where the coordinator reads it at the next
// start or after a notification; the same document may be installed again. It returns an error if the document cannot
// follow the current one or does not list this coordinator's key.
func InstallRootDocument(disk store.Disk, s *coordinatorsettings.ConfigFile, document []byte) (wire.RootDocument,
	error) {
	next, err := wire.DecodeAndVerifyRootDocument(document)
	if err != nil {
		return next, err
	}
	roots, err := s.RootDocuments()
	switch {
	case err != nil:
		return next, err
	case len(roots) == 0:
		return next, errors.New("this federation has no root document: enrol.root_file is empty, and the devices' " +
			"configurations contain the coordinator's key")
	}
	held := &roots[len(roots)-1]
	if bytes.Equal(document, held.Bytes()) {
		return next, nil
	}
	if err := next.CheckSuccession(held); err != nil {
		return next, err
	}
	key, err := s.CoordinatorPrivateKey()
	if err == nil {
		err = coordinatorsettings.CheckKeyMayAnnounce(&next, keys.Public(key))
	}
	if err != nil {
		return next, err
	}
	return next, disk.WriteFileDurably(filepath.Join(s.StateDir, runs.RootDocumentFile(next.Version)), document, 0o600)
}

// installRootDocument writes the next root document to disk, makes the coordinator and the registrar use it, and then
// revokes the devices that the document lists as revoked.
func (e *enrolmentService) installRootDocument(ctx context.Context, document []byte) (done RootInstalled, err error) {
	next, err := e.applyRootDocument(ctx, document)
	if err != nil {
		return done, err
	}
	e.federation.o.Logger.Warn("root document installed; devices receive it from the broker", "version", next.Version)
	for _, id := range next.RevokedAgents {
		if err := e.revokeDevice(ctx, id); err != nil && !errors.Is(err, coordinator.ErrUnlisted) {
			return done, err
		}
	}
	return RootInstalled{uint32(next.Version)}, nil
}

// applyRootDocument checks the document against the registrar's keys, writes it, and makes the registrar and the
// coordinator use it. Calls are serialised.
func (e *enrolmentService) applyRootDocument(ctx context.Context, document []byte) (next wire.RootDocument, err error) {
	e.agentListMu.Lock()
	defer e.agentListMu.Unlock()
	if e.enroller != nil {
		if err := e.enroller.CheckRootDocument(document); err != nil {
			return next, api.BadRequest("%v", err)
		}
	}
	s := e.federation.settings()
	if next, err = InstallRootDocument(e.agentListDisk(), s, document); err != nil {
		return next, api.BadRequest("%v", err)
	}
	if err := e.federation.publishStateToReplicas(ctx); err != nil {
		return next, err
	}
	if e.enroller != nil {
		if err := e.enroller.SetRootDocument(document); err != nil {
			return next, err
		}
	}
	roots, err := s.RootDocuments()
	if err != nil {
		return next, err
	}
	c, err := e.federation.awaitCoordinator(ctx)
	if err != nil {
		return next, err
	}
	return next, c.SetRootDocuments(ctx, roots)
}
