package agent_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// issuer is a certificate authority for tests.
type issuer struct {
	t    *testing.T
	name string
	key  *ecdsa.PrivateKey
	made int64
}

func newIssuer(t *testing.T, name string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{t: t, name: name, key: key}
}

// issue returns a certificate for a device, which is valid from now on for the duration life.
func (i *issuer) issue(name string, key any, life time.Duration) []byte {
	i.t.Helper()
	i.made++
	ca := &x509.Certificate{Subject: pkix.Name{CommonName: i.name}}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(i.made), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now(), NotAfter: time.Now().Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key, i.key)
	if err != nil {
		i.t.Fatal(err)
	}
	return der
}

// certified returns a test scene whose agent has a root document and a certificate.
func certified(t *testing.T, life time.Duration) (s *scene, by *issuer, configured *tls.Certificate) {
	s, by = rooted(t), newIssuer(t, "plant")
	key := newIssuer(t, "").key
	configured = &tls.Certificate{Certificate: [][]byte{by.issue("plant-press", key.Public(), life)}, PrivateKey: key}
	s.cfg.Identity.ReadConfiguredCertificate = func() (tls.Certificate, error) { return *configured, nil }
	return s, by, configured
}

// requests returns the agent's requests for a new key or certificate, oldest first.
func (s *scene) requests() (all []wire.CredentialRenewalRequest, envelopes []wire.Envelope) {
	s.t.Helper()
	for _, e := range s.heard(wire.TypeRenewalRequest) {
		m, err := wire.DecodeCredentialRenewalRequest(e.Body)
		if err == nil {
			err = e.Verify(m.NewKey.Ed25519())
		}
		if err != nil {
			s.t.Fatal(err)
		}
		all, envelopes = append(all, m), append(envelopes, e)
	}
	return all, envelopes
}

// answer sends the coordinator's answer to the request with the index n.
func (s *scene) answer(n int, a wire.CredentialRenewalAnswer) {
	_, envelopes := s.requests()
	a.RequestDigest = envelopes[n].Digest()
	s.direct(wire.TypeRenewalAnswer, 0, a.Body())
}

// certificate returns the certificate that the agent has requested. It checks that the request is signed with the
// certificate's key.
func (s *scene) certificate(by *issuer, m *wire.CredentialRenewalRequest, life time.Duration) []byte {
	s.t.Helper()
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), m.TLSKey[:])
	sum := sha256.Sum256(m.SignedText("plant", "press"))
	if err != nil || !ecdsa.VerifyASN1(key, sum[:], m.TLSKeySignature) {
		s.t.Fatalf("the key of the certificate has not signed: %v", err)
	}
	return by.issue("plant-press", key, life)
}

// uses returns the certificate that the agent uses for its next connection.
func (s *scene) uses() []byte {
	s.t.Helper()
	configured, _ := s.cfg.Identity.ReadConfiguredCertificate()
	is, err := identity.LoadCertificate(store.LocalDisk, s.cfg.StateDir, configured)
	if err != nil {
		s.t.Fatal(err)
	}
	if !is.PrivateKey.(*ecdsa.PrivateKey).PublicKey.Equal(mustParse(s.t, is.Certificate[0]).PublicKey) {
		s.t.Error("the key of the certificate is another one")
	}
	return is.Certificate[0]
}

func mustParse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestCertificateRenewed checks that the agent requests a new certificate after two thirds of the certificate's
// lifetime, and retries at growing intervals while the coordinator is unavailable for a day. The agent must save the
// new certificate, use it after a restart, and report no warning.
func TestCertificateRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 90 * 24 * time.Hour
		s, by, configured := certified(t, life)
		s.start()
		wait(60*24*time.Hour - time.Minute)
		if all, _ := s.requests(); len(all) > 0 {
			t.Fatalf("%d requests before two thirds of the life", len(all))
		}
		wait(4 * 24 * time.Hour)
		all, _ := s.requests()
		if n := len(all); n < 10 || n > 40 {
			t.Errorf("%d requests in a day or more without an answer", n)
		}
		last := all[len(all)-1]
		if last.ListedKey != (wire.SigningPublicKey{}) || last.NewKey != wire.SigningPublicKeyOf(s.cfg.Identity.Key) {
			t.Errorf("asked is for another key, too: %+v", last)
		}
		der := s.certificate(by, &last, life)
		s.answer(len(all)-1, wire.CredentialRenewalAnswer{Certificate: der})
		if got := s.uses(); string(got) != string(der) {
			t.Fatal("the next connection does not use it")
		}
		s.stop()
		s.start()
		wait(time.Hour)
		if again, _ := s.requests(); len(again) != len(all) {
			t.Errorf("%d requests after the answer", len(again)-len(all))
		}
		used := eventsOf[identity.CertificateUsed](s)
		if len(used) != 3 || used[0].IsRenewal || !used[1].IsRenewal || !used[2].IsRenewal ||
			!used[2].ExpiresAt.Equal(mustParse(t, der).NotAfter) {
			t.Errorf("told %+v", used)
		}
		wait(63 * 24 * time.Hour)
		if again, _ := s.requests(); len(again) <= len(all) {
			t.Error("the second certificate is not renewed")
		}
		if ending := eventsOf[identity.CertificateExpiring](s); len(ending) > 0 {
			t.Errorf("warned of: %+v", ending)
		}
		configured.Certificate = [][]byte{by.issue("plant-press",
			// certificate that is configured after the device has joined again
			configured.PrivateKey.(*ecdsa.PrivateKey).Public(), life)}
		if got := s.uses(); string(got) != string(configured.Certificate[0]) {
			t.Error("a certificate that a person has put there is not used")
		}
	})
}

// TestCertificateEnds checks that the agent reports a warning once a day if its renewal request is not answered: in the
// last sixth of the certificate's lifetime, and after the certificate has expired.
func TestCertificateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := certified(t, 60*24*time.Hour)
		s.start()
		wait(62*24*time.Hour + time.Hour)
		ending := eventsOf[identity.CertificateExpiring](s)
		if len(ending) != 13 || ending[0].TimeLeft != 10*24*time.Hour || ending[12].TimeLeft != -2*24*time.Hour {
			t.Errorf("told %d times: %+v", len(ending), ending)
		}
		// answer to an outdated request
		s.answer(0, wire.CredentialRenewalAnswer{RefusalReason: wire.RenewalNoAuthority})
		if len(eventsOf[identity.RenewalRefused](s)) > 0 {
			t.Error("an answer to a request of long ago counts")
		}
		all, _ := s.requests()
		s.answer(len(all)-1, wire.CredentialRenewalAnswer{RefusalReason: wire.RenewalNoAuthority})
		wait(30 * 24 * time.Hour)
		if again, _ := s.requests(); len(again) != len(all) {
			t.Errorf("%d requests after the refusal", len(again)-len(all))
		}
	})
}

// TestForeignCertificates checks that the agent keeps a certificate of another authority. It must also keep its current
// certificate if an answer contains another key or name, or was not requested.
func TestForeignCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const life = 90 * 24 * time.Hour
		s, by, configured := certified(t, life)
		s.start()
		wait(64 * 24 * time.Hour)
		all, envelopes := s.requests()
		last, n := all[len(all)-1], len(all)-1
		stranger := newIssuer(t, "plant")
		keyOf := func(m *wire.CredentialRenewalRequest) *ecdsa.PublicKey {
			k, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), m.TLSKey[:])
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		other := wire.CredentialRenewalAnswer{RequestDigest: wire.Digest{1}, Certificate: by.issue("plant-press",
			keyOf(&last),
			life)}
		s.direct(wire.TypeRenewalAnswer, 0, other.Body())
		s.answer(n, wire.CredentialRenewalAnswer{Certificate: by.issue("plant-press", stranger.key.Public(), life)})
		forged := wire.CredentialRenewalAnswer{RequestDigest: envelopes[n].Digest(), Certificate: other.Certificate}
		s.send(s.topics.CoordinatorToAgent("press"), wire.SignEnvelope(nil, s.header(wire.TypeRenewalAnswer, 0),
			forged.Body(),
			s.cfg.Identity.Key))
		if got := s.uses(); string(got) != string(configured.Certificate[0]) {
			t.Fatal("a certificate is taken that is not the answer's, or of another key")
		}
		s.answer(n, wire.CredentialRenewalAnswer{Certificate: newIssuer(t, "company").issue("plant-press",
			keyOf(&last), life)})
		wait(10 * 24 * time.Hour)
		if again, _ := s.requests(); len(again) != len(all) ||
			string(s.uses()) != string(configured.Certificate[0]) {
			t.Error("one of another authority is taken, or asked for again")
		}
	})
}

// TestCertificateOfNoLife checks that the agent works with a certificate whose validity ends before it begins, and
// reports the certificate as expired.
func TestCertificateOfNoLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := certified(t, -10*24*time.Hour)
		s.start()
		wait(time.Hour)
		if told := eventsOf[identity.CertificateExpiring](s); len(told) == 0 || told[0].TimeLeft > 0 {
			t.Errorf("told: %+v", told)
		}
	})
}

// rotate requests a new device key, as an operator does. The returned channel receives the result.
func (s *scene) rotate() chan error {
	done := make(chan error, 1)
	host := s.host
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		done <- host.RotateKey(ctx)
	}()
	synctest.Wait()
	return done
}

// TestKeyRotated checks that the agent saves its next key before it requests the key, and that the agent ends after the
// answer and then starts with the new key. If the answer is lost, each start must request the same key again.
func TestKeyRotated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, by, _ := certified(t, 90*24*time.Hour)
		s.start()
		first := wire.SigningPublicKeyOf(s.cfg.Identity.Key)
		done := s.rotate()
		all, _ := s.requests()
		if len(all) != 1 || all[0].ListedKey != first || all[0].TLSKey == nil ||
			!all[0].IsVouchedByListedKey(first, "plant", "press") {
			t.Fatalf("asked: %+v", all)
		}
		next := all[0].NewKey
		s.stop() // The coordinator's answer is lost.
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a person is told %v", err)
		}
		s.start()
		all, _ = s.requests()
		if n := len(all); n != 2 || all[1].NewKey != next || all[1].ListedKey != first {
			t.Fatalf("asked at the next start: %+v", all)
		}
		if e := s.heard(wire.TypePresence); e[len(e)-1].Verify(first.Ed25519()) != nil {
			t.Error("the next key is used before the answer")
		}
		done = s.rotate()
		all, _ = s.requests()
		if all[len(all)-1].NewKey != next {
			t.Error("a second wish makes another key")
		}
		der := s.certificate(by, &all[len(all)-1], 90*24*time.Hour)
		s.answer(len(all)-1, wire.CredentialRenewalAnswer{Certificate: der})
		if err := <-s.done; !errors.As(err, new(*identity.DeviceKeyReplacedError)) {
			t.Fatalf("it ends with %v", err)
		}
		s.done = nil
		if err := <-done; err != nil {
			t.Errorf("a person is told %v", err)
		}
		if got := s.uses(); string(got) != string(der) {
			t.Error("the certificate that came with the key is not used")
		}
		s.start()
		if e := s.heard(wire.TypePresence); e[len(e)-1].Verify(next.Ed25519()) != nil {
			t.Error("the next start has another key")
		}
		if again, _ := s.requests(); len(again) != len(all) {
			t.Error("it is asked for once more")
		}
		s.stop()
		_, s.cfg.Identity.Key, _ = ed25519.GenerateKey(nil) // key that is configured after the device has joined again
		s.start()
		configured := s.cfg.Identity.Key.Public().(ed25519.PublicKey)
		if e := s.heard(wire.TypePresence); e[len(e)-1].Verify(configured) != nil {
			t.Error("the key that a person has put there is not used")
		}
	})
}

// TestKeyRefused checks that the agent reports a refusal of its new key and keeps the current key. It must request the
// new key again when the coordinator's list contains another key for the device.
func TestKeyRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		done := s.rotate()
		s.answer(0, wire.CredentialRenewalAnswer{RefusalReason: wire.RenewalStorageFailed})
		wait(20 * time.Second)
		all, _ := s.requests()
		if len(all) < 2 || all[0].TLSKey != nil {
			t.Fatalf("asked: %+v", all)
		}
		s.answer(len(all)-1, wire.CredentialRenewalAnswer{RefusalReason: wire.RenewalKeyOfOtherDevice})
		if err := <-done; err == nil {
			t.Error("a person is told that it is done")
		}
		wait(time.Hour)
		if again, _ := s.requests(); len(again) != len(all) {
			t.Error("it is asked for after the refusal")
		}
		said := s.heard(wire.TypePresence)
		s.direct(wire.TypeMessageRejection, 0,
			(&wire.MessageRejection{MessageDigest: said[len(said)-1].Digest(), Reason: wire.RejectedOtherKey}).Body())
		again, _ := s.requests()
		if len(again) != len(all)+1 || again[len(all)].NewKey != all[0].NewKey {
			t.Fatal("the next key is not asked for again")
		}
		s.answer(len(all), wire.CredentialRenewalAnswer{})
		if err := <-s.done; !errors.As(err, new(*identity.DeviceKeyReplacedError)) {
			t.Errorf("it ends with %v", err)
		}
		s.done = nil
		s.cfg.IsStateDirVolatile = true
		s.start()
		if err := <-s.rotate(); !errors.Is(err, identity.ErrVolatileStateFolder) {
			t.Errorf("in memory: %v", err)
		}
	})
}
