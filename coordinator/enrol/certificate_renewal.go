package enrol

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// ErrRevoked says that the root document revokes a device.
var ErrRevoked = errors.New("the root document revokes the device")

// errProof says that the sender of a request has not got the key that it asks a certificate for.
var errProof = errors.New("the request is not signed with the key of the certificate that it asks for")

// RenewCertificate makes a certificate for a device that has asked for one, from now on. The caller knows that the
// request is the device's.
func (d *Registrar) RenewCertificate(federation wire.Federation, agent wire.AgentID, m *wire.RenewalRequest,
	now time.Time) ([]byte,
	error) {
	if d.IsRevoked(agent) {
		return nil, ErrRevoked
	}
	key := clientKey(*m.TLS)
	sum := sha256.Sum256(m.SignedText(federation, agent))
	if key == nil || !ecdsa.VerifyASN1(key, sum[:], m.TLSSignature) {
		return nil, errProof
	}
	return d.cfg.Authority.IssueClientCertificate(d.cfg.BrokerUserName(agent), key, now, d.cfg.CertificateLifetime)
}
