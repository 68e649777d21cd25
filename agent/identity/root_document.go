package identity

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

// coordinatorTrust contains the public keys of the coordinator that are currently valid.
type coordinatorTrust struct {
	document *wire.RootDocument // root document that contains the keys; nil if the coordinator's key is configured
	keys     []coordinatorKey
}

// coordinatorKey is one of the coordinator's keys.
type coordinatorKey struct {
	public    ed25519.PublicKey
	selection wire.SelectionKey // key that identifies this agent in announcements
}

// newCoordinatorTrust returns the coordinator's keys from a root document. If document is nil, it returns the
// configured key.
func newCoordinatorTrust(own ed25519.PrivateKey, configured ed25519.PublicKey,
	document *wire.RootDocument) (t coordinatorTrust,
	err error) {
	t.document = document
	keys := []ed25519.PublicKey{configured}
	if document != nil {
		keys = coordinatorPublicKeys(document)
	}
	for _, k := range keys {
		selection, err := wire.NewSelectionKey(own, k)
		if err != nil {
			return t, fmt.Errorf("invalid coordinator key: %w", err)
		}
		t.keys = append(t.keys, coordinatorKey{k, selection})
	}
	return t, nil
}

// coordinatorPublicKeys returns the coordinator's keys in a root document.
func coordinatorPublicKeys(d *wire.RootDocument) (all []ed25519.PublicKey) {
	for _, k := range d.CoordinatorKeys() {
		all = append(all, k.Ed25519())
	}
	return all
}

// rootVersion returns the version of the root document, or wire.FirstRootVersion if the agent has no root document.
func (t *coordinatorTrust) rootVersion() wire.RootVersion {
	if t.document == nil {
		return wire.FirstRootVersion
	}
	return t.document.Version
}

// RevokedError is the error with which an agent stops if the root document revokes it. Restarting the agent does not
// help.
type RevokedError struct{ Version wire.RootVersion }

func (e *RevokedError) Error() string {
	return fmt.Sprintf("this device is revoked by version %d of the federation's root document", e.Version)
}

// checkRevocation returns a RevokedError if the document revokes the agent.
func checkRevocation(d *wire.RootDocument, id wire.AgentID) error {
	if d != nil && slices.Contains(d.RevokedAgents, id) {
		return &RevokedError{d.Version}
	}
	return nil
}

// loadRootDocument returns the newer of the saved and the configured root document. It ignores a document that was
// saved before the device joined the federation again.
func (p *AgentIdentity) loadRootDocument() (*wire.RootDocument, error) {
	if p.cfg.Root == nil {
		return nil, nil
	}
	newest := p.cfg.Root
	err := p.core.StateFolder.LoadFile(state.RootDocument, func(b []byte) (err error) {
		newest, err = newestRootDocument(p.cfg.Root, b)
		return err
	})
	return newest, err
}

// newestRootDocument returns the root document from a saved record. It returns the configured document if the record is
// not newer or belongs to another configured document.
func newestRootDocument(configured *wire.RootDocument, record []byte) (*wire.RootDocument, error) {
	if len(record) < sha256.Size {
		return configured, fmt.Errorf("the content of the file has %d bytes, but must have more than %d",
			len(record), sha256.Size)
	}
	d, err := wire.DecodeAndVerifyRootDocument(record[sha256.Size:])
	if err == nil && wire.Digest(record[:sha256.Size]) == sha256.Sum256(configured.Bytes()) &&
		d.Version > configured.Version {
		return &d, nil
	}
	return configured, err
}

// LoadCoordinatorKeys returns the coordinator's keys that a device accepts. It reads the newest root document from the
// state folder. It uses the configured document if the saved document is unreadable or not newer.
func LoadCoordinatorKeys(d store.Disk, dir string, configured *wire.RootDocument) []ed25519.PublicKey {
	newest := configured
	if body, err := d.LoadStateFile(dir, state.RootDocument); err == nil {
		if saved, err := newestRootDocument(configured, body); err == nil {
			newest = saved
		}
	}
	return coordinatorPublicKeys(newest)
}

// requestNextRootDocument subscribes to the root document with the next version. The broker delivers the document when
// it is published.
func (p *AgentIdentity) requestNextRootDocument() {
	if p.trust.document != nil && !p.core.IsUplinkBudgetSpent() {
		p.rootRequestedAt = p.core.Loop.Now()
		p.core.Conn.Subscribe(mqtt.AtMostOnce, p.core.Topics.RootDocument(p.trust.rootVersion()+1))
	}
}

// ReceiveRootDocument verifies, saves and then installs the next root document. The document is valid if its signatures
// are valid.
func (p *AgentIdentity) ReceiveRootDocument(version string, payload []byte) error {
	current := p.trust.document
	if current == nil || version != strconv.FormatUint(uint64(current.Version)+1, 10) || p.rootBeingStored != nil {
		return host.NewMessageDropError(part.DropUnwanted, "received an unexpected version of the root document: %s",
			version)
	}
	next, err := wire.DecodeAndVerifyRootDocument(payload)
	if err != nil {
		return err
	}
	if err := next.CheckSuccession(current); err != nil {
		return host.NewMessageDropError(part.DropSignature, "%w", err)
	}
	trust, err := newCoordinatorTrust(p.core.Signer.Key, p.cfg.Coordinator, &next)
	if err != nil {
		return err
	}
	p.rootBeingStored = &next
	p.core.WriteRetrier.StartWrite(state.RetriedWrite{Purpose: "save the root document",
		WriteFile: func() error {
			anchor := sha256.Sum256(p.cfg.Root.Bytes())
			return p.core.StateFolder.SaveFile(state.RootDocument, append(anchor[:], next.Bytes()...))
		},
		OnSuccess: func() { p.installRootDocument(trust) }})
	return nil
}

// installRootDocument makes the keys of a saved root document valid. It renews the announcement subscription, because
// an announcement signed with a new key may have been dropped.
func (p *AgentIdentity) installRootDocument(t coordinatorTrust) {
	p.core.Conn.Unsubscribe(p.core.Topics.RootDocument(t.rootVersion()))
	p.trust, p.rootBeingStored = t, nil
	p.core.Signer.SetRootVersion(t.rootVersion())
	if p.cfg.Clock != nil {
		p.cfg.Clock.forgetCoordinatorTimes() // A thief of the old key may have signed a false time.
	}
	p.onNewRoot()
	p.core.Observer.Observe(RootDocumentAdopted{Version: t.rootVersion()})
	if err := checkRevocation(t.document, p.core.ID); err != nil {
		p.core.StopAgent(err)
		return
	}
	p.requestNextRootDocument()
	if !p.core.IsUplinkBudgetSpent() {
		p.core.Conn.Subscribe(mqtt.AtMostOnce, p.core.Topics.Announcement())
	}
}

// rootRequestInterval is the minimum interval between two requests for the next root document. It limits the traffic
// that a forged message can cause.
const rootRequestInterval = 30 * time.Second

// rejectMessageOfNewerRoot returns the error for a message that names a later root document than the agent's. It
// requests the next root document again, because its first delivery may have been lost.
func (p *AgentIdentity) rejectMessageOfNewerRoot(e *wire.Envelope) error {
	if p.core.Loop.Now().Sub(p.rootRequestedAt) >= rootRequestInterval {
		p.requestNextRootDocument()
	}
	return host.NewMessageDropError(part.DropNewerRoot,
		"%s message requires version %d of the root document, but the agent has version %d: the next root document "+
			"has not arrived yet",
		e.Type, e.Root, p.trust.rootVersion())
}

// RootDocumentAdopted reports that the next root document is stored and its keys are in force.
type RootDocumentAdopted struct{ Version wire.RootVersion }

// Describe implements observe.Event.
func (e RootDocumentAdopted) Describe(d *observe.EventDescription) {
	d.Log(observe.Info, "root document installed", "version", e.Version)
}
