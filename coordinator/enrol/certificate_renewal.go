package enrol

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// ErrRevoked means that the root document revokes the device.
var ErrRevoked = errors.New("the device is revoked by the root document")

// errProof means that the sender of a request does not hold the private key for the requested certificate.
var errProof = errors.New("the request is not signed with the key of the requested certificate")

// RenewCertificate issues a new certificate for a device, valid from now. The caller must have verified that the device
// sent the request.
func (d *Registrar) RenewCertificate(federation wire.FederationName, agent wire.AgentID,
	m *wire.CredentialRenewalRequest,
	now time.Time) ([]byte,
	error) {
	if d.IsDeviceRevoked(agent) {
		return nil, ErrRevoked
	}
	key := parseClientKey(*m.TLSKey)
	sum := sha256.Sum256(m.SignedText(federation, agent))
	if key == nil || !ecdsa.VerifyASN1(key, sum[:], m.TLSKeySignature) {
		return nil, errProof
	}
	return d.cfg.CertificateAuthority.IssueClientCertificate(d.cfg.MakeBrokerUserName(agent), key, now,
		d.cfg.DeviceCertificateLifetime)
}

var renewedCredentials = observe.Counter("renewals_total",
	"Keys and certificates renewed, including repeated requests after a lost answer.")

// CredentialsRenewed reports that a device received a new key, a new certificate or both.
type CredentialsRenewed struct {
	Agent                wire.AgentID
	KeyChanged           bool      // true if messages signed with the previous key are now rejected
	IsRepeated           bool      // true if the device repeated its request because the answer was lost
	CertificateExpiresAt time.Time // expiry of the new certificate; zero without one
}

// Describe implements observe.Event.
func (e CredentialsRenewed) Describe(d *observe.EventDescription) {
	d.IncCounter(renewedCredentials)
	attributes := []any{"agent", e.Agent, "repeated", e.IsRepeated}
	if !e.CertificateExpiresAt.IsZero() {
		attributes = append(attributes, "certificate_expires", e.CertificateExpiresAt.UTC().Format(time.DateTime))
	}
	if e.KeyChanged {
		d.Log(observe.Warn, "device key replaced; the previous key is no longer accepted",
			attributes...)
	} else {
		d.Log(observe.Info, "device certificate renewed", attributes...)
	}
}

var refusedRenewals = observe.CounterByLabel("renewals_refused_total",
	"Refused requests for a new key or certificate, by reason.",
	"reason", observe.StringerNames(wire.RenewalRefusalReasons()))

// RenewalRefused reports that a device's request for a new key or certificate was refused.
type RenewalRefused struct {
	Agent  wire.AgentID
	Reason wire.RenewalRefusalReason
	Err    error // cause of the refusal; nil if Reason is sufficient
}

// Describe implements observe.Event.
func (e RenewalRefused) Describe(d *observe.EventDescription) {
	d.IncCounter(refusedRenewals, e.Reason.String())
	attributes := []any{"agent", e.Agent, "reason", e.Reason}
	if e.Err != nil {
		attributes = append(attributes, "err", e.Err)
	}
	d.Log(observe.Warn, "credential renewal refused", attributes...)
}
