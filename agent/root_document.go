package agent

import (
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// trustAnchors is whose words count: the coordinator's keys, by the root document if there is one.
type trustAnchors struct {
	document *wire.RootDocument // nil where the coordinator's key stands in the configuration
	keys     []coordinatorKey
}

// coordinatorKey is one of the coordinator's keys. Its selection finds this agent in an announcement.
type coordinatorKey struct {
	public    ed25519.PublicKey
	selection wire.SelectionKey
}

// newTrust returns whom an agent trusts by a root document, or by its configuration alone.
func newTrust(c *Config, document *wire.RootDocument) (t trustAnchors, err error) {
	t.document = document
	keys := []ed25519.PublicKey{c.Coordinator}
	if document != nil {
		keys = nil
		for _, k := range document.CoordinatorKeys() {
			keys = append(keys, k.Ed25519())
		}
	}
	for _, k := range keys {
		selection, err := wire.NewSelectionKey(c.Key, k)
		if err != nil {
			return t, fmt.Errorf("the coordinator's key: %w", err)
		}
		t.keys = append(t.keys, coordinatorKey{k, selection})
	}
	return t, nil
}

// version is that of the root document; wire.FirstRoot if there is none.
func (t *trustAnchors) version() wire.RootVersion {
	if t.document == nil {
		return wire.FirstRoot
	}
	return t.document.Version
}

// RevokedError ends an agent that the root document revokes. A restart does not help.
type RevokedError struct{ Version wire.RootVersion }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("the federation's root document revokes this device, from version %d on", e.Version)
}

// checkRevocation returns a RevokedError if the document names the agent.
func checkRevocation(d *wire.RootDocument, id wire.AgentID) error {
	if d != nil && slices.Contains(d.Revoked, id) {
		return &RevokedError{d.Version}
	}
	return nil
}

// loadRoot returns the newest root document that was taken since the configured one was put there, or that one. One
// that a person puts in its place, by another join, begins anew.
func loadRoot(c *Config) (*wire.RootDocument, error) {
	if c.Root == nil {
		return nil, nil
	}
	newest := c.Root
	err := c.state().Load(state.RootDocument, func(b []byte) (err error) {
		newest, err = newestRoot(c.Root, b)
		return err
	})
	return newest, err
}

// newestRoot returns the root document of a record, or the configured one if the record was made for another one or is
// not newer.
func newestRoot(configured *wire.RootDocument, record []byte) (*wire.RootDocument, error) {
	if len(record) < sha256.Size {
		return configured, fmt.Errorf("%d bytes, want more than %d", len(record), sha256.Size)
	}
	d, err := wire.DecodeVerifiedRoot(record[sha256.Size:])
	if err == nil && wire.Digest(record[:sha256.Size]) == sha256.Sum256(configured.Bytes()) &&
		d.Version > configured.Version {
		return &d, nil
	}
	return configured, err
}

// CoordinatorKeys returns the keys of the coordinator that a device accepts. They stand in the newest root document of
// its state folder, or in the configured one if the state folder has no readable later document.
func CoordinatorKeys(d store.Disk, dir string, configured *wire.RootDocument) (all []ed25519.PublicKey) {
	newest := configured
	if body, err := state.Read(d, dir, state.RootDocument); err == nil {
		if is, err := newestRoot(configured, body); err == nil {
			newest = is
		}
	}
	for _, k := range newest.CoordinatorKeys() {
		all = append(all, k.Ed25519())
	}
	return all
}

func saveRoot(c *Config, d *wire.RootDocument) error {
	anchor := sha256.Sum256(c.Root.Bytes())
	return c.state().Save(state.RootDocument, append(anchor[:], d.Bytes()...))
}

// subscribeRoot asks for the next root document. Whenever there is one, it comes.
func (a *Agent) subscribeRoot() {
	if a.trust.document != nil && !a.budget.Spent() {
		a.rootAskedAt = a.owner.Now()
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Root(a.trust.version()+1))
	}
}

// receiveRoot takes the next root document, once it is stored. All that it needs is its signatures.
func (a *Agent) receiveRoot(version string, p []byte) error {
	held := a.trust.document
	if held == nil || version != strconv.FormatUint(uint64(held.Version)+1, 10) || a.rootBeingStored != nil {
		return host.NewDropError(part.DropUnwanted, "version %s of the root document", version)
	}
	next, err := wire.DecodeVerifiedRoot(p)
	if err != nil {
		return err
	}
	if err := next.CheckSuccession(held); err != nil {
		return host.NewDropError(part.DropSignature, "%w", err)
	}
	trust, err := newTrust(&a.cfg, &next)
	if err != nil {
		return err
	}
	a.rootBeingStored = &next
	a.writes.Start(state.Write{Purpose: rootDocumentWrite, Do: func() error { return saveRoot(&a.cfg, &next) },
		Done: func() { a.adoptRootDocument(trust) }})
	return nil
}

// adoptRootDocument has the keys of a root document count that is on the disk. What came too early for it is asked for
// again.
func (a *Agent) adoptRootDocument(t trustAnchors) {
	a.conn.Unsubscribe(a.cfg.Topics.Root(t.version()))
	a.trust, a.rootBeingStored = t, nil
	a.mesh.replaceBeaconKeys(a.newBeaconKeys(a.mesh.beaconKeys.Load().attestation))
	a.signer.SetRootVersion(t.version())
	a.announcementAge.latestIssueTime = 0 // a thief of the key before may have told any time
	if a.cfg.Clock != nil {
		a.cfg.Clock.reset()
	}
	a.cfg.Observer.Observe(RootDocumentAdopted{Version: t.version()})
	if err := checkRevocation(t.document, a.cfg.ID); err != nil {
		a.fatalErr = err
		return
	}
	a.subscribeRoot()
	if !a.budget.Spent() {
		a.conn.Subscribe(mqtt.AtMostOnce, a.cfg.Topics.Announcement())
	}
}

// rootRequestInterval is the least time between two questions for the next root document: anybody can speak of one.
const rootRequestInterval = 30 * time.Second

// reportNewerRoot tells of a message by a root document that the agent has not, and asks for the next one again: it may
// have been lost on its way.
func (a *Agent) reportNewerRoot(e *wire.Envelope) error {
	if a.owner.Now().Sub(a.rootAskedAt) >= rootRequestInterval {
		a.subscribeRoot()
	}
	return host.NewDropError(part.DropNewerRoot,
		"%s of root %d, but the agent holds root %d: the documents between have not come",
		e.Type, e.Root, a.trust.version())
}

// RootDocumentAdopted: the agent has stored the next root document. Its keys are now in force.
type RootDocumentAdopted struct{ Version wire.RootVersion }

// Describe implements observe.Event.
func (e RootDocumentAdopted) Describe(d *observe.Description) {
	d.Log(observe.Info, "root document installed", "version", e.Version)
}
