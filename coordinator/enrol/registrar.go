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

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// AgentList is who may take part.
type AgentList interface {
	// CheckKeysMatchRoot reports why a device may not come into the list, in the place of another one, which may be
	// itself, or be empty. A device that is there already, with this key, may. The error wraps ErrListed or ErrOther,
	// or the list cannot be read.
	Check(id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error
	// AdmitDevice puts the device there, and returns when it is on the disk and the coordinator has taken it.
	Admit(ctx context.Context, id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error
	// Has reports whether the device is there, with this key.
	Has(id wire.AgentID, key wire.SigningPublicKey) (bool, error)
}

// Why a device may not come into the list.
var (
	ErrListed = errors.New("the device is in the list with another key")
	ErrOther  = errors.New("the key is in the list under another name, or is no key")
)

// Config is what a desk works with.
type Config struct {
	EncodedRootDocument       []byte             // the root document
	CoordinatorKey            ed25519.PrivateKey // of the coordinator; the root document names it
	CertificateAuthority      *CertificateAuthority
	DeviceCertificateLifetime time.Duration             // of devices' certificates
	SharedDeviceSettings      []wire.AgentSetting       // that all devices share; ascending
	MakeBrokerUserName        func(wire.AgentID) string // of a device at the broker
	List                      AgentList
	Observer                  observe.Observer
	Disk                      store.Disk
	StateDir                  string // with the file of the tokens
	Now                       func() time.Time
}

// Registrar takes devices in. It may be used from several goroutines.
type Registrar struct {
	cfg Config // Root is the one at the start: see shown

	attemptLimiter attemptLimiter
	observerMutex  sync.Mutex // one after another

	presentedRootDocument atomic.Pointer[presentedRootDocument]

	mu                sync.Mutex // one change after another
	tokens            *tokenStore
	reportedOpenUntil time.Time // as it was told last
}

// CheckKeysMatchRoot reports why keys, authority and root document do not belong together.
func (c *Config) CheckKeysMatchRoot() error {
	root, err := wire.DecodeAndVerifyRootDocument(c.EncodedRootDocument)
	if err != nil {
		return err
	}
	if !slices.Contains(root.CoordinatorKeys(), wire.SigningPublicKeyOf(c.CoordinatorKey)) {
		return errors.New("the root document names another coordinator's key: want the key that " +
			"`coordinator init` has made with it")
	}
	return c.CertificateAuthority.checkNamedInRootDocument(&root)
}

// Open opens a desk.
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

// reportOpenUntil tells whether any device may join, if that has changed.
func (d *Registrar) reportOpenUntil(now time.Time) {
	if until := d.tokens.openJoinUntil(now); !until.Equal(d.reportedOpenUntil) {
		d.reportedOpenUntil = until
		d.Observe(OpenJoinChanged{until})
	}
}

// Observe tells an event: one after another.
func (d *Registrar) Observe(f observe.Event) {
	d.observerMutex.Lock()
	defer d.observerMutex.Unlock()
	d.cfg.Observer.Observe(f)
}

// OpenJoinUntil returns until when any device may join; the zero time if none may.
func (d *Registrar) OpenJoinUntil() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reportOpenUntil(d.cfg.Now())
	return d.reportedOpenUntil
}

// RootDocument returns the root document.
func (d *Registrar) RootDocument() wire.RootDocument { return d.presentedRootDocument.Load().document }

// ListenerCertificate is that of the listener.
func (d *Registrar) ListenerCertificate() tls.Certificate {
	return d.presentedRootDocument.Load().listenerCertificate
}

// presentedRootDocument is what a device sees: a root document with its encoding, and the certificate that carries it.
type presentedRootDocument struct {
	document            wire.RootDocument
	encodedDocument     []byte
	listenerCertificate tls.Certificate
}

// CheckRootDocument reports why a root document does not go with the desk's keys.
func (d *Registrar) CheckRootDocument(p []byte) error {
	next := d.cfg
	next.EncodedRootDocument = p
	return next.CheckKeysMatchRoot()
}

// SetRootDocument gives devices another root document from now on. The error is that of Config.Check.
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

// IssueToken makes a token that is valid for ttl. An empty agent makes one for any device that is not in the list; it
// is not burnt. replaces is the device in whose place the new one comes, which may be the same; it may be empty.
func (d *Registrar) IssueToken(agent, replaces wire.AgentID, ttl time.Duration) (wire.EnrolmentToken, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if agent == "" && replaces != "" {
		return wire.EnrolmentToken{}, fmt.Errorf("the new device in the place of %s has no name: give one", replaces)
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

// CheckDeviceName reports why no device can have that name.
func (d *Registrar) CheckDeviceName(agent wire.AgentID) error {
	if err := agent.ValidateNonCoordinator(); err != nil {
		return err
	}
	if d.IsDeviceRevoked(agent) {
		return fmt.Errorf("the root document revokes %s: choose another name", agent)
	}
	if name := d.cfg.MakeBrokerUserName(agent); len(name) > maxCommonName {
		return fmt.Errorf("%s has %d characters, and a certificate's name has at most %d: choose a shorter id", name,
			len(name), maxCommonName)
	}
	return nil
}

// RevokeOpenToken removes the token with which any device may join.
func (d *Registrar) RevokeOpenToken() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now()
	defer d.reportOpenUntil(now)
	return d.tokens.removeOpenToken(now)
}

// RemoveTokensOfDevice removes the tokens with which a device could come back. Call it before the device is taken from
// the list.
func (d *Registrar) RemoveTokensOfDevice(agent wire.AgentID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tokens.removeForAgent(agent, d.cfg.Now())
}

// Join answers a join that came over the connection with that binding. Nothing is changed if ctx has ended before
// its turn comes.
func (d *Registrar) Join(ctx context.Context, j *wire.EnrolmentRequest, binding []byte,
	from netip.Addr) wire.EnrolmentAnswer {
	if d.attemptLimiter.isSourceBlocked(from, d.cfg.Now()) {
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

// CountMalformedRequest counts a request that was no join.
func (d *Registrar) CountMalformedRequest(from netip.Addr) {
	d.attemptLimiter.countFailure(from, d.cfg.Now())
}

func (d *Registrar) processJoinRequest(ctx context.Context, j *wire.EnrolmentRequest, binding []byte, from netip.Addr,
	now time.Time) (
	a wire.EnrolmentAnswer, reason wire.EnrolmentRefusalReason, err error) {
	if err := ctx.Err(); err != nil { // others were before it for too long
		return a, wire.EnrolmentStorageFailed, err
	}
	t := d.tokens.findForJoin(j, binding, now)
	key := parseClientKey(j.TLSKey)
	if t == nil || key == nil || !hasBothSignatures(j, key, binding) {
		d.attemptLimiter.countFailure(from, now)
		return a, wire.EnrolmentUnknownToken, nil
	}
	if d.IsDeviceRevoked(j.Agent) {
		return a, wire.EnrolmentDeviceRevoked, nil
	}
	if err := d.CheckDeviceName(j.Agent); err != nil { // an open token is for any name
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

// admitToList puts the device of a join into the list, once a token: a list that was changed after that stays as it is.
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

// AdmitDevice takes in a device whose keys a person has: it was preauthorized, or its keys were made here. made is from
// when its certificate counts its time.
func (d *Registrar) AdmitDevice(ctx context.Context, agent wire.AgentID, key wire.SigningPublicKey,
	tls wire.TLSPublicKey,
	made time.Time) (
	wire.EnrolmentAnswer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	client := parseClientKey(tls)
	if client == nil {
		return wire.EnrolmentAnswer{}, errors.New("the key of the client certificate is no point of P-256")
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

// newAdmissionAnswer is what a device gets that is in the list.
func (d *Registrar) newAdmissionAnswer(agent wire.AgentID, key *ecdsa.PublicKey, made time.Time) (wire.EnrolmentAnswer,
	error) {
	leaf, err := d.cfg.CertificateAuthority.IssueClientCertificate(d.cfg.MakeBrokerUserName(agent), key, made,
		d.cfg.DeviceCertificateLifetime)
	return wire.EnrolmentAnswer{RootDocument: d.presentedRootDocument.Load().encodedDocument, Certificate: leaf,
		CACertificate: d.cfg.CertificateAuthority.Certificate.Raw,
		Settings:      d.cfg.SharedDeviceSettings}, err
}

// parseClientKey reads the key of a client certificate; nil if it is no point of the curve.
func parseClientKey(k wire.TLSPublicKey) *ecdsa.PublicKey {
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), k[:])
	if err != nil {
		return nil
	}
	return key
}

// hasBothSignatures reports whether a join has the signatures of both keys that it names.
func hasBothSignatures(j *wire.EnrolmentRequest, key *ecdsa.PublicKey, binding []byte) bool {
	text := j.SignedText(binding)
	sum := sha256.Sum256(text)
	return ed25519.Verify(j.DeviceKey[:], text, j.DeviceKeySignature[:]) && ecdsa.VerifyASN1(key, sum[:],
		j.TLSKeySignature)
}

var joinedDevices = observe.Counter("joins_total",
	"Devices that joined with a token, including repeated requests after a lost answer.")

// DeviceJoined: a device was admitted and is in the list of agents.
type DeviceJoined struct {
	Agent, ReplacedAgent wire.AgentID
	IsRepeated           bool // the device asked again, because the answer was lost
}

// Describe implements observe.Event.
func (e DeviceJoined) Describe(d *observe.EventDescription) {
	d.IncCounter(joinedDevices)
	attributes := []any{"agent", e.Agent, "again", e.IsRepeated}
	if e.ReplacedAgent != "" {
		attributes = append(attributes, "in_place_of", e.ReplacedAgent)
	}
	d.Log(observe.Info, "device joined", attributes...)
}

var refusedJoins = observe.CounterByLabel("joins_refused_total",
	"Refused requests of devices to join, by reason.", "reason", observe.StringerNames(wire.EnrolmentRefusalReasons()))

// JoinRefused: the request of a device to join was refused. A device without a valid token may have sent any name.
type JoinRefused struct {
	Agent         wire.AgentID
	SourceAddress string
	Reason        wire.EnrolmentRefusalReason
	Err           error // of EnrolmentStorageFailed
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
	"Whether an unused token exists that admits any device (1) or not (0).")

// OpenJoinChanged: any device with the open token may join until OpenJoinUntil.
type OpenJoinChanged struct{ OpenUntil time.Time } // zero = a device needs a token of its own

// Describe implements observe.Event.
func (e OpenJoinChanged) Describe(d *observe.EventDescription) {
	const condition = "open enrolment"
	d.SetBoolGauge(openTokenExists, !e.OpenUntil.IsZero())
	if e.OpenUntil.IsZero() {
		d.Log(observe.Info, "enrolment closed: a device joins with a token of its own")
		d.ResolveCondition(condition)
		return
	}
	until := e.OpenUntil.Local().Format(time.DateTime)
	d.Log(observe.Warn, "enrolment open: every device with the open token may join, under any free name",
		"until", until)
	d.RaiseCondition(condition, "every device with the open token may join, under any free name, until "+until,
		"`coordinator enrol --close` removes the token")
}
