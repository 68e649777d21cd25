package agent

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

// renewal is how the agent gets another certificate before the present one ends, and another key when a person wants
// one. It asks until the coordinator answers. The next key is on the disk before it is asked for, and used once the
// answer is: whatever is killed when, the coordinator's list has this key or the one before, and the agent finds out
// which by asking again.
type renewal struct {
	// of the next connection; nil if there is none, or none that the coordinator has made
	leaf               *x509.Certificate
	renewAt            time.Time // when another one is asked for, by the clock of certificates
	expiryWarningAt    time.Time // when a person is told that it ends, by that clock, again and again
	certificateCheckAt time.Time // when the files are read again
	authorityChanged   bool      // the coordinator's authority is another one than that of the leaf

	keyRequested       bool           // another one is asked for
	nextRequestAt      time.Time      // of the next question; zero = nothing is asked for
	wait               time.Duration  // until the one after
	unansweredRequests []renewRequest // that were not answered, the newest last
	refusal            wire.RenewalRefusal
	rotateCallers      []chan error // that wait for another key
}

// renewRequest is a request that was sent.
type renewRequest struct {
	digest              wire.Digest
	key                 wire.SigningPublicKey // that is to come in the place of the present one; zero = none
	certificateKey      *ecdsa.PrivateKey     // of the certificate; nil if none was asked for
	replacedCertificate *x509.Certificate     // in whose place it comes
}

const (
	// maxUnansweredRequests is how many questions wait for an answer.
	maxUnansweredRequests = 4
	// certificateEvery is how often the agent looks whether a person has put another certificate there.
	certificateEvery = time.Hour
	// The waits for an answer begin with the two hundredth part of a certificate's life and double up to the
	// thirtieth, within these bounds: a coordinator answers once in ten seconds. For a key a person waits.
	minRequestInterval, maxRequestInterval = 11 * time.Second, 6 * time.Hour
)

// RekeyedError ends an agent that has another key from now on: it is to start again.
type RekeyedError struct{}

func (*RekeyedError) Error() string { return "the agent has another key from its next start on" }

// ErrVolatileStateFolder says that a device whose state folder does not survive a power cut can get no other key.
var ErrVolatileStateFolder = errors.New("the state folder is in memory: a power cut would take the new key, and " +
	"the coordinator " +
	"would hear this device no more; let it join again instead: coordinator devices rotate ID")

// RotateKey has the device get another key. It returns when the coordinator and the disk have it; the agent ends with a
// RekeyedError then. The error is why it has none yet; where ctx ended before the answer came, the agent goes on
// asking. It may be called from any goroutine.
func (a *Agent) RotateKey(ctx context.Context) error {
	if a.cfg.Volatile {
		return ErrVolatileStateFolder
	}
	done := make(chan error, 1)
	if err := a.owner.RunOnLoopContext(ctx, func() { a.startKeyRotation(done) }); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the coordinator has not answered yet; the agent goes on asking: %w", ctx.Err())
	}
}

// startKeyRotation asks for another key: the one that was asked for before, if there is one.
func (a *Agent) startKeyRotation(done chan error) {
	r := &a.renewal
	r.rotateCallers = append(r.rotateCallers, done)
	if a.deviceKeys.next != nil {
		a.askForNextKey()
		return
	}
	if r.keyRequested {
		return // it is being stored
	}
	_, next, err := ed25519.GenerateKey(nil)
	if err != nil {
		a.rotated(err)
		return
	}
	r.keyRequested = true
	held := deviceKeyState{a.deviceKeys.configured, next}
	a.owner.Go(func() {
		err := held.save(&a.cfg, a.cfg.Key)
		a.owner.RunOnLoop(func() {
			if err != nil {
				r.keyRequested = false
				a.rotated(err)
				return
			}
			a.deviceKeys = held
			a.askForNextKey()
		})
	})
}

// rotated tells those who wait for another key.
func (a *Agent) rotated(err error) {
	for _, c := range a.renewal.rotateCallers {
		c <- err
	}
	a.renewal.rotateCallers = nil
}

// askForNextKey asks for the next key, with another certificate if the coordinator makes these.
func (a *Agent) askForNextKey() {
	if a.deviceKeys.next != nil {
		a.renewal.keyRequested = true
		a.startRenewalRequests()
	}
}

// clockNow is the time by which certificates are held.
func (a *Agent) clockNow() time.Time {
	if a.cfg.Clock != nil {
		return a.cfg.Clock.Now()
	}
	return a.owner.Now()
}

// checkCertificateFiles reads which certificate the next connection uses.
func (a *Agent) checkCertificateFiles() {
	if a.cfg.Certificate == nil {
		return
	}
	a.renewal.certificateCheckAt = a.owner.Now().Add(certificateEvery)
	a.owner.Go(func() {
		configured, err := a.cfg.Certificate()
		var leaf *x509.Certificate
		if err == nil && len(configured.Certificate) > 0 {
			is, _ := LoadCertificate(a.cfg.Disk, a.cfg.Dir, configured) // else the configured one
			leaf, err = x509.ParseCertificate(is.Certificate[0])
		}
		if err != nil {
			return // a file is half written; the connection's log tells what lasts
		}
		a.owner.RunOnLoop(func() { a.scheduleRenewal(leaf, configured) })
	})
}

// scheduleRenewal plans for the certificate of the next connection.
func (a *Agent) scheduleRenewal(leaf *x509.Certificate, configured tls.Certificate) {
	r := &a.renewal
	if leaf == nil || r.leaf != nil && r.leaf.Equal(leaf) {
		return
	}
	renewed := !bytes.Equal(leaf.Raw, configured.Certificate[0])
	r.leaf, r.authorityChanged = leaf, false
	life := r.certificateLifetime()
	jitter := time.Duration(a.cfg.Rand.Int64N(int64(life/30) + 1)) // a fleet may have joined in one hour
	r.renewAt, r.expiryWarningAt = leaf.NotBefore.Add(life/3*2).Add(jitter), leaf.NotAfter.Add(-life/6)
	a.cfg.Observer.Observe(CertificateUsed{Until: leaf.NotAfter, Renewed: renewed})
	a.tickRenewal(a.owner.Now())
}

// certificateLifetime is how long the certificate counts in all; 0 of one that ends before it begins.
func (r *renewal) certificateLifetime() time.Duration {
	return max(r.leaf.NotAfter.Sub(r.leaf.NotBefore), 0)
}

// renewalAt is when the renewal wants a tick.
func (a *Agent) renewalAt() (at time.Time, ok bool) {
	r := &a.renewal
	if ok = a.cfg.Certificate != nil; ok {
		at = r.certificateCheckAt
	}
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if a.core.Connected && !r.nextRequestAt.IsZero() {
		earlier(r.nextRequestAt)
	}
	if r.leaf != nil {
		now, until := a.owner.Now(), r.expiryWarningAt
		if a.coordinatorRenews() && r.nextRequestAt.IsZero() && r.renewAt.Before(until) {
			until = r.renewAt
		}
		earlier(now.Add(max(until.Sub(a.clockNow()), 0)))
	}
	return at, ok
}

// coordinatorRenews reports whether the coordinator makes this certificate: where the device has joined with a token.
func (a *Agent) coordinatorRenews() bool {
	return a.trust.document != nil && a.renewal.leaf != nil && !a.renewal.authorityChanged
}

func (a *Agent) tickRenewal(now time.Time) {
	r := &a.renewal
	if a.cfg.Certificate != nil && !now.Before(r.certificateCheckAt) {
		a.checkCertificateFiles()
	}
	if r.leaf != nil {
		clock := a.clockNow()
		if a.coordinatorRenews() && r.nextRequestAt.IsZero() && !clock.Before(r.renewAt) {
			a.startRenewalRequests()
		}
		if !clock.Before(r.expiryWarningAt) {
			r.expiryWarningAt = clock.Add(min(24*time.Hour, r.certificateLifetime()/12+time.Second))
			a.cfg.Observer.Observe(CertificateEnding{Until: r.leaf.NotAfter, TimeLeft: r.leaf.NotAfter.Sub(clock),
				LastRefusal: r.refusal})
		}
	}
	if a.core.Connected && !r.nextRequestAt.IsZero() && !now.Before(r.nextRequestAt) {
		a.sendRenewalRequest(now)
	}
}

// resumeRenewal goes on with it on a new link.
func (a *Agent) resumeRenewal() {
	a.checkCertificateFiles()
	if a.deviceKeys.next != nil {
		a.askForNextKey()
	} else if !a.renewal.nextRequestAt.IsZero() {
		a.startRenewalRequests()
	}
}

// startRenewalRequests asks now, if there is a link, and again until there is an answer.
func (a *Agent) startRenewalRequests() {
	r := &a.renewal
	r.wait = minRequestInterval
	if r.leaf != nil && !r.keyRequested {
		r.wait = min(max(r.certificateLifetime()/200, minRequestInterval), time.Minute)
	}
	r.nextRequestAt = a.owner.Now()
	if a.core.Connected {
		a.sendRenewalRequest(r.nextRequestAt)
	}
}

// sendRenewalRequest sends a request.
func (a *Agent) sendRenewalRequest(now time.Time) {
	r := &a.renewal
	jitter := time.Duration(a.cfg.Rand.Int64N(int64(r.wait)/2 + 1))
	r.nextRequestAt = now.Add(r.wait + jitter)
	most := maxRequestInterval
	if r.leaf != nil {
		most = min(max(r.certificateLifetime()/30, minRequestInterval), maxRequestInterval)
	}
	r.wait = min(2*r.wait, most)
	q, p, err := a.newRenewRequest()
	if err != nil {
		a.cfg.Logger.Error("cannot make another key", "err", err)
		return
	}
	r.unansweredRequests = append(r.unansweredRequests[max(0, len(r.unansweredRequests)+1-maxUnansweredRequests):], q)
	a.publish(mqtt.Message{Topic: a.cfg.Topics.AgentToCoordinator(a.cfg.ID), Payload: p, QoS: mqtt.AtMostOnce})
}

// newRenewRequest makes a request.
func (a *Agent) newRenewRequest() (q renewRequest, sealed []byte, err error) {
	key, m := a.cfg.Key, wire.RenewalRequest{}
	if a.renewal.keyRequested {
		key = a.deviceKeys.next
		q.key = wire.SigningPublicKeyOf(key)
	}
	m.NewKey = wire.SigningPublicKeyOf(key)
	if a.coordinatorRenews() {
		q.replacedCertificate = a.renewal.leaf
		if q.certificateKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return q, nil, err
		}
		p, err := q.certificateKey.PublicKey.Bytes()
		if err != nil {
			return q, nil, err
		}
		m.TLS = (*wire.TLSKey)(p)
	}
	if a.renewal.keyRequested {
		m.SignWithListedKey(a.cfg.Federation, a.cfg.ID, a.cfg.Key)
	}
	if q.certificateKey != nil {
		sum := sha256.Sum256(m.SignedText(a.cfg.Federation, a.cfg.ID))
		if m.TLSSignature, err = ecdsa.SignASN1(rand.Reader, q.certificateKey, sum[:]); err != nil {
			return q, nil, err
		}
	}
	sealed = a.signer.SignedEnvelopeWithKey(key, wire.TypeRenew, m.Body())
	e, err := wire.ParseEnvelope(sealed)
	if err == nil {
		q.digest = e.Digest()
	}
	return q, sealed, err
}

// receiveRenewalAnswer takes an answer to a request that was not answered before.
func (a *Agent) receiveRenewalAnswer(m wire.RenewalAnswer) error {
	r := &a.renewal
	i := slices.IndexFunc(r.unansweredRequests, func(q renewRequest) bool { return q.digest == m.RequestDigest })
	if i < 0 {
		return host.NewDropError(part.DropUnwanted, "an answer to a request that this agent does not wait for")
	}
	q := r.unansweredRequests[i]
	if m.Refusal != 0 {
		return a.renewalRefused(m.Refusal)
	}
	leaf, err := q.check(m.Certificate)
	if err != nil {
		return err
	}
	r.unansweredRequests, r.nextRequestAt, r.refusal = nil, time.Time{}, 0
	if leaf != nil {
		r.renewAt = leaf.NotAfter // until it is read back
	} else if q.certificateKey != nil { // the coordinator makes no certificates, or as another authority
		r.authorityChanged = true
	}
	a.writes.Start(state.Write{Purpose: keysWrite, Do: a.renewalWriter(&q, leaf),
		Done: func() { a.applyRenewal(&q, leaf) }})
	return nil
}

// check reads the certificate of an answer; nil if there is none that could come in the place of the present one.
func (q *renewRequest) check(der []byte) (*x509.Certificate, error) {
	if len(der) == 0 {
		return nil, nil
	}
	leaf, err := x509.ParseCertificate(der)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the certificate: %w", err)
	case q.certificateKey == nil || !q.certificateKey.PublicKey.Equal(leaf.PublicKey):
		return nil, host.NewDropError(part.DropUnwanted, "a certificate of another key")
	case leaf.Subject.CommonName != q.replacedCertificate.Subject.CommonName || !bytes.Equal(leaf.RawIssuer,
		q.replacedCertificate.RawIssuer):
		return nil, nil
	}
	return leaf, nil
}

// renewalWriter returns what stores what has come: the certificate first, since the key ends this start.
func (a *Agent) renewalWriter(q *renewRequest, leaf *x509.Certificate) (write func() error) {
	held, next := deviceKeyState{a.deviceKeys.configured, nil}, a.deviceKeys.next
	return func() error {
		if leaf != nil {
			configured, err := a.cfg.Certificate()
			if err != nil {
				return err
			}
			is, _ := LoadCertificate(a.cfg.Disk, a.cfg.Dir, configured)
			if bytes.Equal(is.Certificate[0], q.replacedCertificate.Raw) { // else a person has put another one there
				err = saveCertificate(&a.cfg, configured.Certificate[0], q.certificateKey, leaf.Raw)
			}
			if err != nil {
				return err
			}
		}
		if q.key == (wire.SigningPublicKey{}) {
			return nil
		}
		return held.save(&a.cfg, next)
	}
}

// applyRenewal goes by what is on the disk.
func (a *Agent) applyRenewal(q *renewRequest, leaf *x509.Certificate) {
	if leaf != nil {
		a.checkCertificateFiles()
	}
	if q.key != (wire.SigningPublicKey{}) {
		a.cfg.Observer.Observe(Rekeyed{Key: q.key})
		a.rotated(nil)
		a.fatalErr = &RekeyedError{}
	}
}

// renewalRefused takes a refusal. The next key stays on the disk: should the coordinator have taken it nevertheless, it
// is asked for again when the present one is not heard, and at the next start.
func (a *Agent) renewalRefused(why wire.RenewalRefusal) error {
	r := &a.renewal
	r.refusal = why
	if why == wire.RenewFailed {
		return nil // it is asked again
	}
	a.cfg.Observer.Observe(RenewalRefused{why})
	r.unansweredRequests, r.nextRequestAt, r.authorityChanged = nil, time.Time{}, r.authorityChanged ||
		why != wire.RenewOther
	if r.keyRequested {
		r.keyRequested = false
		a.rotated(fmt.Errorf("the coordinator refuses: %s", RenewRefusalText(why)))
	}
	return nil
}
