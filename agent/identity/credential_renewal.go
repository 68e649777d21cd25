package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// credentialRenewal is the state of the agent's requests for a new certificate or a new key. The agent requests a
// certificate before the current certificate expires, and a key when an operator asks for it. It repeats a request
// until the coordinator answers.
//
// The agent saves its next key before it requests the key, and uses the key after the answer is saved. After a crash,
// the coordinator's list may therefore contain either the current key or the next key; a repeated request shows which.
type credentialRenewal struct {
	// leafCertificate is the certificate of the next connection. It is nil if there is none or it has not been read
	// yet.
	leafCertificate        *x509.Certificate
	renewAt                time.Time // time at which to renew the certificate, according to the certificate clock
	nextExpiryWarningAt    time.Time // time of the next expiry warning, according to the certificate clock
	nextCertificateCheckAt time.Time // time of the next check for a newly configured certificate
	hasForeignIssuer       bool      // whether the certificate was issued by an authority other than the coordinator's

	requestsNewKey     bool             // true if the renewal request contains a new device key
	nextRequestAt      time.Time        // time of the next renewal request; zero if none is planned
	retryInterval      time.Duration    // interval between a request and its retry
	unansweredRequests []renewalRequest // sent requests without an answer, newest last
	refusal            wire.RenewalRefusalReason
	rotateCallers      []chan error // channels on which RotateKey calls wait for the result
}

// renewalRequest is a sent request for a new key, a new certificate or both.
type renewalRequest struct {
	envelopeDigest wire.Digest
	newKey         wire.SigningPublicKey // requested new device key; zero if the request contains none
	// private key for the requested certificate; nil if the request contains none
	certificateKey      *ecdsa.PrivateKey
	replacedCertificate *x509.Certificate
}

const (
	// maxUnansweredRequests is the maximum number of recent requests for which the agent accepts an answer.
	maxUnansweredRequests = 4
	// certificateCheckInterval is the interval between checks for a newly configured certificate.
	certificateCheckInterval = time.Hour
	// minRequestInterval and maxRequestInterval bound the interval between two requests, which starts at 1/200 of the
	// certificate's lifetime and doubles up to 1/30. A coordinator answers at most one request every ten seconds.
	minRequestInterval, maxRequestInterval = 11 * time.Second, 6 * time.Hour
)

// DeviceKeyReplacedError is the error with which an agent stops after its key was replaced. The agent uses the new key
// after the restart.
type DeviceKeyReplacedError struct{}

func (*DeviceKeyReplacedError) Error() string {
	return "the device key was replaced: the agent must restart to use the new key"
}

// ErrVolatileStateFolder is returned by RotateKey if the state folder does not survive a power cut.
var ErrVolatileStateFolder = errors.New("the state folder is in memory, so a power cut would destroy the new key and " +
	"lock this device out: let the device join again with `coordinator devices rotate ID` instead")

// RotateKey replaces the device's key. It returns when the coordinator and the state folder have the new key; then the
// agent ends with a DeviceKeyReplacedError. If ctx ends first, the agent continues to repeat the request. It may be
// called from any goroutine.
func (p *AgentIdentity) RotateKey(ctx context.Context) error {
	if p.core.StateFolder.Volatile {
		return ErrVolatileStateFolder
	}
	done := make(chan error, 1)
	if err := p.core.Loop.RunOnLoopContext(ctx, func() { p.startKeyRotation(done) }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer from the coordinator yet; the agent keeps retrying: %w", ctx.Err())
	}
}

// startKeyRotation creates, saves and requests a new key. If a key request is already pending, it repeats this request.
func (p *AgentIdentity) startKeyRotation(done chan error) {
	r := &p.renewal
	r.rotateCallers = append(r.rotateCallers, done)
	if p.keys.nextKey != nil {
		p.RequestKeyReplacement()
		return
	}
	if r.requestsNewKey {
		return // The new key is still being saved.
	}
	_, next, err := ed25519.GenerateKey(nil)
	if err != nil {
		p.answerRotateCallers(err)
		return
	}
	r.requestsNewKey = true
	keys, inUse := deviceKeys{p.keys.configured, next}, p.core.Signer.Key
	p.core.Loop.Go(func() {
		err := keys.save(p.core.StateFolder, inUse)
		p.core.Loop.RunOnLoop(func() {
			if err != nil {
				r.requestsNewKey = false
				p.answerRotateCallers(err)
				return
			}
			p.keys = keys
			p.RequestKeyReplacement()
		})
	})
}

// answerRotateCallers sends a result to the waiting callers of RotateKey.
func (p *AgentIdentity) answerRotateCallers(err error) {
	for _, c := range p.renewal.rotateCallers {
		c <- err
	}
	p.renewal.rotateCallers = nil
}

// RequestKeyReplacement requests the pending new key again, which the coordinator may already accept. It also requests
// a certificate if the coordinator issues certificates.
func (p *AgentIdentity) RequestKeyReplacement() {
	if p.keys.nextKey != nil {
		p.renewal.requestsNewKey = true
		p.startRenewalRequests()
	}
}

// checkCertificateFiles reads the certificate of the next connection and schedules its renewal.
func (p *AgentIdentity) checkCertificateFiles() {
	if p.cfg.ReadConfiguredCertificate == nil {
		return
	}
	p.renewal.nextCertificateCheckAt = p.core.Loop.Now().Add(certificateCheckInterval)
	p.core.Loop.Go(func() {
		configured, err := p.cfg.ReadConfiguredCertificate()
		var leaf *x509.Certificate
		if err == nil && len(configured.Certificate) > 0 {
			// After an error, LoadCertificate returns the configured certificate.
			inUse, _ := LoadCertificate(p.core.StateFolder.Disk, p.core.StateFolder.Dir, configured)
			leaf, err = x509.ParseCertificate(inUse.Certificate[0])
		}
		if err != nil {
			return // A file may be half written. If the error persists, the next connection reports it.
		}
		p.core.Loop.RunOnLoop(func() { p.scheduleRenewal(leaf, configured) })
	})
}

// scheduleRenewal schedules the renewal of a newly read certificate.
func (p *AgentIdentity) scheduleRenewal(leaf *x509.Certificate, configured tls.Certificate) {
	r := &p.renewal
	if leaf == nil || r.leafCertificate != nil && r.leafCertificate.Equal(leaf) {
		return
	}
	renewed := !bytes.Equal(leaf.Raw, configured.Certificate[0])
	r.leafCertificate, r.hasForeignIssuer = leaf, false
	lifetime := r.certificateLifetime()
	// Spread the renewals of devices that joined at the same time.
	jitter := time.Duration(p.core.Rand.Int64N(int64(lifetime/30) + 1))
	r.renewAt, r.nextExpiryWarningAt = leaf.NotBefore.Add(lifetime/3*2).Add(jitter), leaf.NotAfter.Add(-lifetime/6)
	p.core.Observer.Observe(CertificateUsed{ExpiresAt: leaf.NotAfter, IsRenewal: renewed})
	p.Tick(p.core.Loop.Now())
}

// certificateLifetime returns the validity period of the certificate. It returns 0 if the certificate ends before it
// begins.
func (r *credentialRenewal) certificateLifetime() time.Duration {
	return max(r.leafCertificate.NotAfter.Sub(r.leafCertificate.NotBefore), 0)
}

// isCertificateFromCoordinator reports whether the coordinator's authority issued the certificate, as it does for
// devices that joined with a token.
func (p *AgentIdentity) isCertificateFromCoordinator() bool {
	return p.trust.document != nil && p.renewal.leafCertificate != nil && !p.renewal.hasForeignIssuer
}

// Deadline implements part.TickHook.
func (p *AgentIdentity) Deadline() (time.Time, bool) {
	r := &p.renewal
	var next part.EarliestDeadline
	next.Add(r.nextCertificateCheckAt, p.cfg.ReadConfiguredCertificate != nil)
	next.Add(r.nextRequestAt, p.core.IsConnected && !r.nextRequestAt.IsZero())
	if r.leafCertificate != nil {
		until := r.nextExpiryWarningAt
		if p.isCertificateFromCoordinator() && r.nextRequestAt.IsZero() && r.renewAt.Before(until) {
			until = r.renewAt
		}
		next.Add(p.core.Loop.Now().Add(max(until.Sub(p.certificateCheckTime()), 0)), true)
	}
	return next.At, next.IsSet
}

// Tick implements part.TickHook.
func (p *AgentIdentity) Tick(now time.Time) {
	r := &p.renewal
	if p.cfg.ReadConfiguredCertificate != nil && !now.Before(r.nextCertificateCheckAt) {
		p.checkCertificateFiles()
	}
	if r.leafCertificate != nil {
		clock := p.certificateCheckTime()
		if p.isCertificateFromCoordinator() && r.nextRequestAt.IsZero() && !clock.Before(r.renewAt) {
			p.startRenewalRequests()
		}
		if !clock.Before(r.nextExpiryWarningAt) {
			r.nextExpiryWarningAt = clock.Add(min(24*time.Hour, r.certificateLifetime()/12+time.Second))
			p.core.Observer.Observe(CertificateExpiring{ExpiresAt: r.leafCertificate.NotAfter,
				TimeLeft:    r.leafCertificate.NotAfter.Sub(clock),
				LastRefusal: r.refusal})
		}
	}
	if p.core.IsConnected && !r.nextRequestAt.IsZero() && !now.Before(r.nextRequestAt) {
		p.sendRenewalRequest(now)
	}
}

// startRenewalRequests sends a request as soon as the agent is connected, and repeats it until it is answered.
func (p *AgentIdentity) startRenewalRequests() {
	r := &p.renewal
	r.retryInterval = minRequestInterval // Retry quickly, because an operator is waiting.
	if r.leafCertificate != nil && !r.requestsNewKey {
		r.retryInterval = min(max(r.certificateLifetime()/200, minRequestInterval), time.Minute)
	}
	r.nextRequestAt = p.core.Loop.Now()
	if p.core.IsConnected {
		p.sendRenewalRequest(r.nextRequestAt)
	}
}

// sendRenewalRequest sends a request and schedules its retry.
func (p *AgentIdentity) sendRenewalRequest(now time.Time) {
	r := &p.renewal
	jitter := time.Duration(p.core.Rand.Int64N(int64(r.retryInterval)/2 + 1))
	r.nextRequestAt = now.Add(r.retryInterval + jitter)
	limit := maxRequestInterval
	if r.leafCertificate != nil {
		limit = min(max(r.certificateLifetime()/30, minRequestInterval), maxRequestInterval)
	}
	r.retryInterval = min(2*r.retryInterval, limit)
	q, payload, err := p.newRenewalRequest()
	if err != nil {
		p.core.Logger.Error("cannot create a request for a new key or certificate", "err", err)
		return
	}
	r.unansweredRequests = append(r.unansweredRequests[max(0, len(r.unansweredRequests)+1-maxUnansweredRequests):], q)
	p.core.Publish(mqtt.Message{Topic: p.core.Topics.AgentToCoordinator(p.core.ID), Payload: payload,
		QoS: mqtt.AtMostOnce})
}

// newRenewalRequest returns a request and its signed envelope.
func (p *AgentIdentity) newRenewalRequest() (q renewalRequest, envelope []byte, err error) {
	key, m := p.core.Signer.Key, wire.CredentialRenewalRequest{}
	if p.renewal.requestsNewKey {
		key = p.keys.nextKey
		q.newKey = wire.SigningPublicKeyOf(key)
	}
	m.NewKey = wire.SigningPublicKeyOf(key)
	if p.isCertificateFromCoordinator() {
		q.replacedCertificate = p.renewal.leafCertificate
		if q.certificateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return q, nil, err
		}
		public, err := q.certificateKey.PublicKey.Bytes()
		if err != nil {
			return q, nil, err
		}
		m.TLSKey = (*wire.TLSPublicKey)(public)
	}
	if p.renewal.requestsNewKey {
		m.SignWithListedKey(p.core.Federation, p.core.ID, p.core.Signer.Key)
	}
	if q.certificateKey != nil {
		sum := sha256.Sum256(m.SignedText(p.core.Federation, p.core.ID))
		if m.TLSKeySignature, err = ecdsa.SignASN1(rand.Reader, q.certificateKey, sum[:]); err != nil {
			return q, nil, err
		}
	}
	envelope = p.core.Signer.SignedEnvelopeWithKey(key, wire.TypeRenewalRequest, m.Body())
	e, err := wire.ParseEnvelope(envelope)
	if err == nil {
		q.envelopeDigest = e.Digest()
	}
	return q, envelope, err
}

// DirectMessageTypes implements part.DirectMessageReceiver.
func (*AgentIdentity) DirectMessageTypes() []wire.MessageType {
	return []wire.MessageType{wire.TypeRenewalAnswer}
}

// ReceiveDirectMessage implements part.DirectMessageReceiver. It saves the certificate and the key of an answer. A new
// key ends the agent.
func (p *AgentIdentity) ReceiveDirectMessage(e *wire.Envelope) error {
	answer, err := wire.DecodeCredentialRenewalAnswer(e.Body)
	if err != nil {
		return err
	}
	r := &p.renewal
	i := slices.IndexFunc(r.unansweredRequests,
		func(q renewalRequest) bool { return q.envelopeDigest == answer.RequestDigest })
	if i < 0 {
		return host.NewMessageDropError(part.DropUnwanted, "received an answer to an unknown renewal request")
	}
	if answer.RefusalReason != 0 {
		p.handleRenewalRefusal(answer.RefusalReason)
		return nil
	}
	q := r.unansweredRequests[i]
	leaf, err := q.parseIssuedCertificate(answer.Certificate)
	if err != nil {
		return err
	}
	r.unansweredRequests, r.nextRequestAt, r.refusal = nil, time.Time{}, 0
	if leaf != nil {
		r.renewAt = leaf.NotAfter // no renewal until the new certificate is read from its file
	} else if q.certificateKey != nil { // The coordinator did not issue a certificate.
		r.hasForeignIssuer = true
	}
	keys, next := deviceKeys{p.keys.configured, nil}, p.keys.nextKey
	hasKey := q.newKey != wire.SigningPublicKey{}
	p.core.WriteRetrier.StartWrite(state.RetriedWrite{Purpose: "save the new key or certificate",
		WriteFile: func() error { // Save the certificate first, because a new key stops the agent.
			if leaf != nil {
				if err := p.replaceCertificate(&q, leaf); err != nil {
					return err
				}
			}
			if hasKey {
				return keys.save(p.core.StateFolder, next)
			}
			return nil
		},
		OnSuccess: func() {
			if leaf != nil {
				p.checkCertificateFiles()
			}
			if hasKey {
				p.core.Observer.Observe(DeviceKeyReplaced{Key: q.newKey})
				p.answerRotateCallers(nil)
				p.core.StopAgent(&DeviceKeyReplacedError{})
			}
		}})
	return nil
}

// parseIssuedCertificate returns the certificate of an answer. It returns nil if the answer has no certificate, or an
// error if the certificate cannot replace the current one.
func (q *renewalRequest) parseIssuedCertificate(der []byte) (*x509.Certificate, error) {
	if len(der) == 0 {
		return nil, nil
	}
	leaf, err := x509.ParseCertificate(der)
	switch {
	case err != nil:
		return nil, fmt.Errorf("invalid certificate: %w", err)
	case q.certificateKey == nil || !q.certificateKey.PublicKey.Equal(leaf.PublicKey):
		return nil, host.NewMessageDropError(part.DropUnwanted, "the certificate was issued for a different key")
	case leaf.Subject.CommonName != q.replacedCertificate.Subject.CommonName || !bytes.Equal(leaf.RawIssuer,
		q.replacedCertificate.RawIssuer):
		return nil, nil
	}
	return leaf, nil
}

// replaceCertificate saves the certificate of an answer, unless another one was configured since the request. It may be
// called from any goroutine.
func (p *AgentIdentity) replaceCertificate(q *renewalRequest, leaf *x509.Certificate) error {
	configured, err := p.cfg.ReadConfiguredCertificate()
	if err != nil {
		return err
	}
	inUse, _ := LoadCertificate(p.core.StateFolder.Disk, p.core.StateFolder.Dir, configured)
	if !bytes.Equal(inUse.Certificate[0], q.replacedCertificate.Raw) {
		return nil
	}
	return saveCertificate(p.core.StateFolder, configured.Certificate[0], q.certificateKey, leaf.Raw)
}

// handleRenewalRefusal stops the requests, unless the coordinator asks for a retry. It keeps the next key in the state
// folder, because the coordinator may have added the key to its list nevertheless. The agent requests the key again at
// the next start, or when the coordinator rejects the current key.
func (p *AgentIdentity) handleRenewalRefusal(reason wire.RenewalRefusalReason) {
	r := &p.renewal
	r.refusal = reason
	if reason == wire.RenewalStorageFailed {
		return // The request is retried.
	}
	p.core.Observer.Observe(RenewalRefused{reason})
	r.unansweredRequests, r.nextRequestAt = nil, time.Time{}
	r.hasForeignIssuer = r.hasForeignIssuer || reason != wire.RenewalKeyOfOtherDevice
	if r.requestsNewKey {
		r.requestsNewKey = false
		p.answerRotateCallers(fmt.Errorf("the coordinator refused the request for a new key: %s",
			RenewRefusalText(reason)))
	}
}
