package enrol

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

// ErrRevoked says that the root document revokes a device.
var ErrRevoked = errors.New("the root document revokes the device")

// errProof says that the sender of a request has not got the key that it asks a certificate for.
var errProof = errors.New("the request is not signed with the key of the certificate that it asks for")

// RenewCertificate makes a certificate for a device that has asked for one, from now on. The caller knows that the
// request is the device's.
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

// CredentialsRenewed: a device got another key, another certificate, or both.
type CredentialsRenewed struct {
	Agent                wire.AgentID
	KeyChanged           bool      // messages that are signed with the previous key are ignored
	IsRepeated           bool      // the device had the key already, and asked again because the answer was lost
	CertificateExpiresAt time.Time // zero without a certificate
}

// Describe implements observe.Event.
func (e CredentialsRenewed) Describe(d *observe.EventDescription) {
	d.IncCounter(renewedCredentials)
	attributes := []any{"agent", e.Agent, "again", e.IsRepeated}
	if !e.CertificateExpiresAt.IsZero() {
		attributes = append(attributes, "certificate_until", e.CertificateExpiresAt.UTC().Format(time.DateTime))
	}
	if e.KeyChanged {
		d.Log(observe.Warn, "device has another key, and its previous key is no longer accepted",
			attributes...)
	} else {
		d.Log(observe.Info, "device has another certificate", attributes...)
	}
}

var refusedRenewals = observe.CounterByLabel("renewals_refused_total",
	"Refused requests for a new key or certificate, by reason.",
	"reason", observe.StringerNames(wire.RenewalRefusalReasons()))

// RenewalRefused: a device asked for another key or certificate, and did not get it.
type RenewalRefused struct {
	Agent  wire.AgentID
	Reason wire.RenewalRefusalReason
	Err    error // nil if the reason is the only cause
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
