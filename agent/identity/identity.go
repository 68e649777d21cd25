// Package identity manages the agent's key and certificate and verifies the coordinator's messages. It replaces the key
// on request, renews the certificate before it expires, and installs the federation's root documents. It also keeps the
// clock for checking certificates.
package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// Config is the configured identity of an agent and of its coordinator.
type Config struct {
	Key ed25519.PrivateKey
	// Coordinator is the public key with which the coordinator signs its messages. It is ignored if Root is set.
	Coordinator ed25519.PublicKey
	// Root is the root document with which the device joined the federation; nil if it joined without one. It contains
	// the coordinator's keys, and the broker delivers later versions.
	Root *wire.RootDocument
	// Clock is the clock for validating TLS certificates; it may be nil. The agent raises the clock's minimum time to
	// the times that the coordinator has signed, and saves that minimum.
	Clock *CertificateClock
	// ReadConfiguredCertificate returns the configured broker certificate, or an empty certificate if none is
	// configured. The field may be nil. The coordinator renews the certificate, and LoadCertificate returns the
	// certificate in use. ReadConfiguredCertificate may be called from any goroutine.
	ReadConfiguredCertificate func() (tls.Certificate, error)
}

// Validate returns an error that lists all problems of the configuration.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Key) != ed25519.PrivateKeySize {
		errs = append(errs, fmt.Errorf("the agent's key has %d bytes instead of %d",
			len(c.Key), ed25519.PrivateKeySize))
	}
	if c.Root == nil && len(c.Coordinator) != ed25519.PublicKeySize {
		errs = append(errs, fmt.Errorf("the coordinator's public key has %d bytes instead of %d", len(c.Coordinator),
			ed25519.PublicKeySize))
	}
	return errors.Join(errs...)
}

// AgentIdentity is the part of an agent that manages its key, its certificate and the coordinator's keys.
type AgentIdentity struct {
	core *part.AgentCore
	cfg  *Config
	// onNewRoot is called when the keys of a new root document have become valid.
	onNewRoot func()

	trust               coordinatorTrust
	rootBeingStored     *wire.RootDocument
	rootRequestedAt     time.Time
	keys                deviceKeys
	renewal             credentialRenewal
	savedTime           savedCoordinatorTime
	clockBehindReported bool
}

// New loads the identity of an agent from its state folder and sets the key of core.Signer and the version of the root
// document. It returns a RevokedError if the root document revokes the device.
func New(core *part.AgentCore, cfg *Config, onNewRoot func()) (*AgentIdentity, error) {
	p := &AgentIdentity{core: core, cfg: cfg, onNewRoot: onNewRoot}
	document, err := p.loadRootDocument()
	if err == nil {
		err = checkRevocation(document, core.ID)
	}
	if err == nil {
		err = p.loadDeviceKeys()
	}
	if err == nil {
		err = checkCertificateRecord(core.StateFolder)
	}
	if err != nil {
		return nil, err
	}
	if p.trust, err = newCoordinatorTrust(core.Signer.Key, cfg.Coordinator, document); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	core.Signer.SetRootVersion(p.trust.rootVersion())
	if err := p.loadCertificateClock(); err != nil {
		return nil, err
	}
	return p, nil
}

// Start implements part.Starter.
func (p *AgentIdentity) Start() {
	p.reportClockBehind()
	p.checkCertificateFiles()
	p.requestNextRootDocument()
}

// LinkUp implements part.LinkFollower. It resumes an unanswered request for a key or certificate.
func (p *AgentIdentity) LinkUp() {
	p.reportClockBehind()
	p.checkCertificateFiles()
	if p.keys.nextKey != nil {
		p.RequestKeyReplacement()
	} else if !p.renewal.nextRequestAt.IsZero() {
		p.startRenewalRequests()
	}
}

// LinkDown implements part.LinkFollower.
func (*AgentIdentity) LinkDown(error) {}

// NeedsLink implements part.LinkNeedReporter. It returns true while the agent waits for a key or certificate or saves a
// root document.
func (p *AgentIdentity) NeedsLink() bool {
	return p.rootBeingStored != nil || !p.renewal.nextRequestAt.IsZero()
}

// VerifyCoordinatorEnvelope verifies a message of the federation's coordinator. It also returns the selection key that
// belongs to the message's signing key; this key identifies the agent in the list of selected agents of an
// announcement. The error is a host.MessageDropError or a decoding error.
func (p *AgentIdentity) VerifyCoordinatorEnvelope(payload []byte) (wire.Envelope, wire.SelectionKey, error) {
	e, err := wire.ParseEnvelope(payload)
	if v := (*wire.ProtocolVersionError)(nil); errors.As(err, &v) {
		err = fmt.Errorf("%w: update the %s", err, v.UpgradeAdvice("agent", "coordinator"))
	}
	switch {
	case err != nil:
		return e, wire.SelectionKey{}, err
	case e.Federation != p.core.Federation || e.Sender != wire.CoordinatorID:
		return e, wire.SelectionKey{}, host.NewMessageDropError(part.DropMisaddressed, "unexpected %s message from "+
			"%s in federation %s",
			e.Type,
			e.Sender, e.Federation)
	case p.trust.document != nil && e.Root > p.trust.rootVersion():
		return e, wire.SelectionKey{}, p.rejectMessageOfNewerRoot(&e)
	}
	for _, k := range p.trust.keys {
		if err = e.VerifyWithScheme(p.core.Signer.SignatureScheme, k.public); err == nil {
			return e, k.selection, nil
		}
	}
	return e, wire.SelectionKey{}, host.NewMessageDropError(part.DropSignature,
		"%w: check that the agent is configured with the key of this coordinator", err)
}

// CoordinatorKeys returns the coordinator's currently valid public keys.
func (p *AgentIdentity) CoordinatorKeys() (all []ed25519.PublicKey) {
	for _, k := range p.trust.keys {
		all = append(all, k.public)
	}
	return all
}

// RevokedAgents returns the agents that the root document revokes.
func (p *AgentIdentity) RevokedAgents() []wire.AgentID {
	if p.trust.document == nil {
		return nil
	}
	return p.trust.document.RevokedAgents
}

// Metrics lists the metrics that the events of this package update.
var Metrics = []*observe.Metric{certificateExpires}
