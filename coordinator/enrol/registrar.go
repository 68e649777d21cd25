package enrol

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// AgentList is the list of agents to which devices are admitted.
type AgentList interface {
	// Check returns nil if the device id may be added to the list with this key. If replaces is not empty, the new
	// entry replaces the entry of that device, which may be id itself. Check also returns nil if the device is already
	// listed with this key. The error wraps ErrListed or ErrOther, or reports that the list cannot be read.
	Check(id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error
	// Admit adds the device to the list. It returns when the list is on disk and the coordinator uses it.
	Admit(ctx context.Context, id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error
	// Has reports whether the device is listed with this key.
	Has(id wire.AgentID, key wire.SigningPublicKey) (bool, error)
}

// Reasons why a device may not be added to the list.
var (
	ErrListed = errors.New("the device is already in the list of agents with a different key")
	ErrOther  = errors.New("the key is invalid, or it is already in the list of agents under a different name")
)

// Config configures a Registrar.
type Config struct {
	EncodedRootDocument       []byte             // signed root document
	CoordinatorKey            ed25519.PrivateKey // key of the coordinator, which the root document must name
	CertificateAuthority      *CertificateAuthority
	DeviceCertificateLifetime time.Duration             // period for which devices' certificates are valid
	SharedDeviceSettings      []wire.AgentSetting       // settings that all devices receive, in ascending order
	MakeBrokerUserName        func(wire.AgentID) string // returns the broker user name of a device
	List                      AgentList
	Observer                  observe.Observer
	Disk                      store.Disk
	StateDir                  string // state folder, which contains the tokens file
	Now                       func() time.Time
}

// Registrar admits devices to the federation. It is safe for concurrent use.
type Registrar struct {
	cfg Config // configuration at the start; for the current root document see presentedRootDocument

	attemptLimiter host.AttemptLimiter
	observerMutex  sync.Mutex // serialises calls of cfg.Observer

	presentedRootDocument atomic.Pointer[presentedRootDocument]

	mu                sync.Mutex // serialises all changes of tokens and of the list of agents
	tokens            *tokenStore
	reportedOpenUntil time.Time // last reported value of OpenJoinUntil
}

// CheckKeysMatchRoot returns an error if the keys, the authority and the root document do not match.
func (c *Config) CheckKeysMatchRoot() error {
	root, err := wire.DecodeAndVerifyRootDocument(c.EncodedRootDocument)
	if err != nil {
		return err
	}
	if !slices.Contains(root.CoordinatorKeys(), wire.SigningPublicKeyOf(c.CoordinatorKey)) {
		return errors.New("the root document contains a different coordinator key: " +
			"use the key that `coordinator init` created with it")
	}
	return c.CertificateAuthority.checkNamedInRootDocument(&root)
}

// Open returns a Registrar for the tokens in the state folder.
func Open(cfg Config) (*Registrar, error) {
	d := &Registrar{cfg: cfg}
	err := d.SetRootDocument(cfg.EncodedRootDocument)
	if err != nil {
		return nil, err
	}
	if d.tokens, err = openTokens(cfg.Disk, cfg.StateDir); err != nil {
		return nil, err
	}
	d.reportOpenUntil(cfg.Now())
	return d, nil
}

// reportOpenUntil reports a change of the time until which any device may join.
func (d *Registrar) reportOpenUntil(now time.Time) {
	if until := d.tokens.openJoinUntil(now); !until.Equal(d.reportedOpenUntil) {
		d.reportedOpenUntil = until
		d.Observe(OpenJoinChanged{until})
	}
}

// Observe forwards an event to the observer. Calls are serialised.
func (d *Registrar) Observe(f observe.Event) {
	d.observerMutex.Lock()
	defer d.observerMutex.Unlock()
	d.cfg.Observer.Observe(f)
}

// OpenJoinUntil returns the time until which any device may join; zero if enrolment is closed.
func (d *Registrar) OpenJoinUntil() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reportOpenUntil(d.cfg.Now())
	return d.reportedOpenUntil
}

// RootDocument returns the current root document.
func (d *Registrar) RootDocument() wire.RootDocument { return d.presentedRootDocument.Load().document }

// ListenerCertificate returns the current TLS certificate of the listener.
func (d *Registrar) ListenerCertificate() tls.Certificate {
	return d.presentedRootDocument.Load().listenerCertificate
}

// presentedRootDocument is the root document that devices receive, with its encoding and the listener certificate that
// contains it.
type presentedRootDocument struct {
	document            wire.RootDocument
	encodedDocument     []byte
	listenerCertificate tls.Certificate
}

// CheckRootDocument returns an error if a root document does not match the Registrar's keys.
func (d *Registrar) CheckRootDocument(p []byte) error {
	next := d.cfg
	next.EncodedRootDocument = p
	return next.CheckKeysMatchRoot()
}

// SetRootDocument replaces the root document that devices receive. It returns the error of CheckRootDocument if the
// document does not match.
func (d *Registrar) SetRootDocument(p []byte) error {
	if err := d.CheckRootDocument(p); err != nil {
		return err
	}
	document, err := wire.DecodeAndVerifyRootDocument(p)
	if err != nil {
		return err
	}
	certificate, err := d.newListenerCertificate(p)
	if err == nil {
		d.presentedRootDocument.Store(&presentedRootDocument{document, p, certificate})
	}
	return err
}

// IsDeviceRevoked reports whether the root document revokes a device.
func (d *Registrar) IsDeviceRevoked(agent wire.AgentID) bool {
	return slices.Contains(d.presentedRootDocument.Load().document.RevokedAgents, agent)
}

// IssueToken issues a token that is valid for ttl. If agent is empty, any unlisted device may use the token,
// repeatedly. replaces is the device that the new one replaces; it may be agent itself, or empty.
func (d *Registrar) IssueToken(agent, replaces wire.AgentID, ttl time.Duration) (wire.EnrolmentToken, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if agent == "" && replaces != "" {
		return wire.EnrolmentToken{}, fmt.Errorf("the device that replaces %s has no name: specify one", replaces)
	}
	if agent != "" {
		if err := d.CheckDeviceName(agent); err != nil {
			return wire.EnrolmentToken{}, err
		}
	}
	now := d.cfg.Now()
	defer d.reportOpenUntil(now)
	return d.tokens.issue(agent, replaces, d.presentedRootDocument.Load().document.RootPin(), now, ttl)
}

// CheckDeviceName returns an error if the name of a device is invalid, revoked or too long for a certificate.
func (d *Registrar) CheckDeviceName(agent wire.AgentID) error {
	if err := agent.ValidateNonCoordinator(); err != nil {
		return err
	}
	if d.IsDeviceRevoked(agent) {
		return fmt.Errorf("%s is revoked by the root document: choose a different name", agent)
	}
	if name := d.cfg.MakeBrokerUserName(agent); len(name) > maxCommonName {
		return fmt.Errorf(
			"the name %s has %d characters, but a certificate name is limited to %d: choose a shorter id", name,
			len(name), maxCommonName)
	}
	return nil
}

// TokenInfo describes a token without its secret.
type TokenInfo struct {
	Agent         wire.AgentID `json:"device,omitempty"`   // device that may join; empty for any device
	ReplacedAgent wire.AgentID `json:"replaces,omitempty"` // device that is replaced
	IssuedAt      time.Time    `json:"issued"`
	ExpiresAt     time.Time    `json:"expires"`
	IsUsed        bool         `json:"used"` // a device has joined with the token
}

// UnexpiredTokens returns the tokens that have not expired.
func (d *Registrar) UnexpiredTokens() []TokenInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []TokenInfo{}
	for _, t := range d.tokens.unexpiredTokens(d.cfg.Now()) {
		all = append(all, TokenInfo{t.Agent, t.ReplacedAgent, t.IssuedAt, t.ExpiresAt, t.isUsed()})
	}
	return all
}

// RevokeOpenToken removes the token that any device may use.
func (d *Registrar) RevokeOpenToken() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	defer d.reportOpenUntil(now)
	return d.tokens.removeOpenToken(now)
}

// RemoveTokensOfDevice removes all tokens with which a device could rejoin. Call it before removing the device from the
// list.
func (d *Registrar) RemoveTokensOfDevice(agent wire.AgentID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tokens.removeForAgent(agent, d.cfg.Now())
}

// Join handles a join request. binding is keying material exported from the TLS connection, which the request's
// signatures cover. If ctx ends before the request is processed, nothing is changed.
func (d *Registrar) Join(ctx context.Context, j *wire.EnrolmentRequest, binding []byte,
	from netip.Addr) wire.EnrolmentAnswer {
	if d.attemptLimiter.IsSourceBlocked(from, d.cfg.Now()) {
		d.Observe(JoinRefused{j.Agent, from.String(), wire.EnrolmentTooManyTries, nil})
		return wire.EnrolmentAnswer{RefusalReason: wire.EnrolmentTooManyTries}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	d.reportOpenUntil(now)
	a, reason, err := d.processJoinRequest(ctx, j, binding, from, now)
	if reason != 0 {
		d.Observe(JoinRefused{j.Agent, from.String(), reason, err})
		return wire.EnrolmentAnswer{RefusalReason: reason}
	}
	return a
}

// CountMalformedRequest counts a malformed request as a failed attempt.
func (d *Registrar) CountMalformedRequest(from netip.Addr) {
	d.attemptLimiter.CountFailure(from, d.cfg.Now())
}

func (d *Registrar) processJoinRequest(ctx context.Context, j *wire.EnrolmentRequest, binding []byte, from netip.Addr,
	now time.Time) (
	a wire.EnrolmentAnswer, reason wire.EnrolmentRefusalReason, err error) {
	if err := ctx.Err(); err != nil { // the request has waited too long for earlier requests
		return a, wire.EnrolmentStorageFailed, err
	}
	t := d.tokens.findForJoin(j, binding, now)
	key := parseClientKey(j.TLSKey)
	if t == nil || key == nil || !hasBothSignatures(j, key, binding) {
		d.attemptLimiter.CountFailure(from, now)
		return a, wire.EnrolmentUnknownToken, nil
	}
	if d.IsDeviceRevoked(j.Agent) {
		return a, wire.EnrolmentDeviceRevoked, nil
	}
	// Check the name of the device, because an open token is valid for any name.
	if err := d.CheckDeviceName(j.Agent); err != nil {
		return a, wire.EnrolmentStorageFailed, err
	}
	if t.isUsed() && !t.isUsedBy(j) {
		return a, wire.EnrolmentTokenUsed, nil
	}
	if reason, err := d.admitToList(ctx, *t, j, now); reason != 0 {
		return a, reason, err
	}
	joined := DeviceJoined{Agent: j.Agent, ReplacedAgent: t.ReplacedAgent, IsRepeated: t.isUsed()}
	if a, err = d.newAdmissionAnswer(j.Agent, key, t.IssuedAt); err != nil {
		return a, wire.EnrolmentStorageFailed, err
	}
	d.Observe(joined)
	return a, 0, nil
}

// admitToList adds the device of a join request to the list, once per token. If the operator has edited the list since
// then, a repeated request does not change it again.
func (d *Registrar) admitToList(ctx context.Context, t tokenRecord, j *wire.EnrolmentRequest,
	now time.Time) (wire.EnrolmentRefusalReason, error) {
	if t.DeviceListed {
		switch is, err := d.cfg.List.Has(j.Agent, j.DeviceKey); {
		case err != nil:
			return wire.EnrolmentStorageFailed, err
		case !is:
			return wire.EnrolmentTokenUsed, nil
		}
		return 0, nil
	}
	if err := d.cfg.List.Check(j.Agent, j.DeviceKey, t.ReplacedAgent); err != nil {
		return refusalForError(err), err
	}
	if !t.isUsed() && t.Agent != "" {
		if err := d.tokens.bindToDevice(t, j, now); err != nil {
			return wire.EnrolmentStorageFailed, err
		}
	}
	if err := d.cfg.List.Admit(ctx, j.Agent, j.DeviceKey, t.ReplacedAgent); err != nil {
		return refusalForError(err), err
	}
	if t.Agent != "" {
		if err := d.tokens.markDeviceListed(t, j, now); err != nil {
			return wire.EnrolmentStorageFailed, err
		}
	}
	return 0, nil
}

// AdmitDevice admits a device whose public keys the operator has, either from the device itself (preauthorisation) or
// because the operator generated them. The certificate of the device is valid from made.
func (d *Registrar) AdmitDevice(ctx context.Context, agent wire.AgentID, key wire.SigningPublicKey,
	tls wire.TLSPublicKey,
	made time.Time) (
	wire.EnrolmentAnswer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	client := parseClientKey(tls)
	if client == nil {
		return wire.EnrolmentAnswer{}, errors.New("the key of the client certificate is not a valid P-256 key")
	}
	err := d.CheckDeviceName(agent)
	if err == nil {
		err = d.cfg.List.Check(agent, key, "")
	}
	if err == nil {
		err = d.cfg.List.Admit(ctx, agent, key, "")
	}
	if err != nil {
		return wire.EnrolmentAnswer{}, err
	}
	d.Observe(DeviceJoined{Agent: agent})
	return d.newAdmissionAnswer(agent, client, made)
}

func refusalForError(err error) wire.EnrolmentRefusalReason {
	switch {
	case errors.Is(err, ErrListed):
		return wire.EnrolmentOtherKeyListed
	case errors.Is(err, ErrOther):
		return wire.EnrolmentKeyOfOtherDevice
	}
	return wire.EnrolmentStorageFailed
}

// newAdmissionAnswer returns the answer for a device that is in the list, with a new certificate.
func (d *Registrar) newAdmissionAnswer(agent wire.AgentID, key *ecdsa.PublicKey, made time.Time) (wire.EnrolmentAnswer,
	error) {
	leaf, err := d.cfg.CertificateAuthority.IssueClientCertificate(d.cfg.MakeBrokerUserName(agent), key, made,
		d.cfg.DeviceCertificateLifetime)
	return wire.EnrolmentAnswer{RootDocument: d.presentedRootDocument.Load().encodedDocument, Certificate: leaf,
		CACertificate: d.cfg.CertificateAuthority.Certificate.Raw,
		Settings:      d.cfg.SharedDeviceSettings}, err
}

// parseClientKey parses the public key of a client certificate. It returns nil if it is not a point on the curve.
func parseClientKey(k wire.TLSPublicKey) *ecdsa.PublicKey {
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), k[:])
	if err != nil {
		return nil
	}
	return key
}

// hasBothSignatures reports whether a join request is signed with both keys that it contains.
func hasBothSignatures(j *wire.EnrolmentRequest, key *ecdsa.PublicKey, binding []byte) bool {
	text := j.SignedText(binding)
	sum := sha256.Sum256(text)
	return ed25519.Verify(j.DeviceKey[:], text, j.DeviceKeySignature[:]) && ecdsa.VerifyASN1(key, sum[:],
		j.TLSKeySignature)
}

var joinedDevices = observe.Counter("joins_total",
	"Devices that joined with a token, including repeated requests after a lost answer.")

// DeviceJoined reports that a device was admitted and added to the list of agents.
type DeviceJoined struct {
	Agent, ReplacedAgent wire.AgentID
	IsRepeated           bool // true if the device repeated its request because the answer was lost
}

// Describe implements observe.Event.
func (e DeviceJoined) Describe(d *observe.EventDescription) {
	d.IncCounter(joinedDevices)
	attributes := []any{"agent", e.Agent, "repeated", e.IsRepeated}
	if e.ReplacedAgent != "" {
		attributes = append(attributes, "replaces", e.ReplacedAgent)
	}
	d.Log(observe.Info, "device joined", attributes...)
}

var refusedJoins = observe.CounterByLabel("joins_refused_total",
	"Refused requests of devices to join, by reason.", "reason", observe.StringerNames(wire.EnrolmentRefusalReasons()))

// JoinRefused reports that a join request was refused. A device without a valid token may have sent any name.
type JoinRefused struct {
	Agent         wire.AgentID
	SourceAddress string
	Reason        wire.EnrolmentRefusalReason
	Err           error // cause of the refusal, if the reason is EnrolmentStorageFailed
}

// Describe implements observe.Event.
func (e JoinRefused) Describe(d *observe.EventDescription) {
	d.IncCounter(refusedJoins, e.Reason.String())
	attributes := []any{"agent", e.Agent, "from", e.SourceAddress, "reason", e.Reason}
	if e.Err != nil {
		attributes = append(attributes, "err", e.Err)
	}
	d.Log(observe.Warn, "join refused", attributes...)
}

var openTokenExists = observe.Gauge("joins_open",
	"Whether an open token, with which any device can join, is valid (1) or not (0).")

// OpenJoinChanged reports that any device with the open token may join until OpenUntil.
type OpenJoinChanged struct{ OpenUntil time.Time } // zero if every device needs its own token

// Describe implements observe.Event.
func (e OpenJoinChanged) Describe(d *observe.EventDescription) {
	const condition = "open enrolment"
	d.SetBoolGauge(openTokenExists, !e.OpenUntil.IsZero())
	if e.OpenUntil.IsZero() {
		d.Log(observe.Info, "enrolment closed: each device needs its own token")
		d.ResolveCondition(condition)
		return
	}
	until := e.OpenUntil.Local().Format(time.DateTime)
	d.Log(observe.Warn, "enrolment open: any device with the open token may join under any unused name",
		"until", until)
	d.RaiseCondition(condition, "any device with the open token may join under any unused name until "+until,
		"remove the open token with `coordinator enrol --close`")
}
