package join

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// answerTimeout is the time limit for the coordinator's reply.
const answerTimeout = 30 * time.Second

// DeviceKeys are the private keys of a device.
type DeviceKeys struct {
	SigningKey ed25519.PrivateKey
	TLSKey     *ecdsa.PrivateKey
}

// NewDeviceKeys generates new keys.
func NewDeviceKeys() (k DeviceKeys, err error) {
	if _, k.SigningKey, err = ed25519.GenerateKey(nil); err == nil {
		k.TLSKey, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	return k, err
}

// Public returns the public keys.
func (k *DeviceKeys) Public() (wire.SigningPublicKey, wire.TLSPublicKey, error) {
	p, err := k.TLSKey.PublicKey.Bytes()
	if err != nil {
		return wire.SigningPublicKey{}, wire.TLSPublicKey{}, err
	}
	return wire.SigningPublicKeyOf(k.SigningKey), wire.TLSPublicKey(p), nil
}

// signEnrolmentRequest returns a signed enrolment request. binding is the channel binding of the TLS connection, so the
// request is valid only on that connection.
func (k *DeviceKeys) signEnrolmentRequest(token *wire.EnrolmentToken, agent wire.AgentID,
	binding []byte) (*wire.EnrolmentRequest,
	error) {
	own, client, err := k.Public()
	if err != nil {
		return nil, err
	}
	j := &wire.EnrolmentRequest{Agent: agent, DeviceKey: own, TLSKey: client}
	text := j.SignedText(binding)
	sum := sha256.Sum256(text)
	j.TokenSignature, j.DeviceKeySignature = wire.Signature(ed25519.Sign(token.SigningKey(), text)),
		wire.Signature(ed25519.Sign(k.SigningKey, text))
	j.TLSKeySignature, err = ecdsa.SignASN1(rand.Reader, k.TLSKey, sum[:])
	return j, err
}

// RequestAdmission asks the coordinator at the URL target to admit the device. It sends the request only after the
// server has proved its identity with the root key that the token pins. It uses its own connection instead of
// http.Client, because the request signs the connection's TLS exporter.
func RequestAdmission(ctx context.Context, target string, token *wire.EnrolmentToken, agent wire.AgentID,
	k *DeviceKeys) (*VerifiedAdmission, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" {
		return nil, fmt.Errorf("the coordinator's address must be https://HOST:PORT, but is %q", target)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var root []byte
	dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, ServerName: u.Hostname(),
		InsecureSkipVerify: true, // the pinned root key replaces the checks of issuer, name and validity
		VerifyConnection: func(s tls.ConnectionState) (err error) {
			root, err = verifyPinnedRoot(s.PeerCertificates[0], token.Pin)
			return err
		}}}
	conn, err := dialer.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", target, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	state := conn.(*tls.Conn).ConnectionState()
	binding, err := state.ExportKeyingMaterial(wire.EnrolmentExporterLabel, nil, 32)
	if err != nil {
		return nil, err
	}
	j, err := k.signEnrolmentRequest(token, agent, binding)
	if err != nil {
		return nil, err
	}
	answer, err := postEnrolmentRequest(conn, u.JoinPath("join"), j.Bytes())
	if err != nil {
		return nil, fmt.Errorf("request to %s failed: %w; run the same command again to retry", target, errors.Join(err,
			ctx.Err()))
	}
	return verifyAdmission(answer, root, token, k)
}

// postEnrolmentRequest sends a request and returns the body of the response.
func postEnrolmentRequest(conn net.Conn, target *url.URL, body []byte) ([]byte, error) {
	r, err := http.NewRequest(http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Close = true
	if err := r.Write(conn); err != nil {
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	p, err := io.ReadAll(io.LimitReader(answer.Body, wire.MaxEnrolmentAnswerBytes+1))
	switch {
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("unexpected reply from the coordinator: %s: %.200s", answer.Status, p)
	case len(p) > wire.MaxEnrolmentAnswerBytes:
		return nil, fmt.Errorf("the coordinator's reply exceeds the limit of %d bytes", wire.MaxEnrolmentAnswerBytes)
	}
	return p, nil
}

// errPinMismatch reports that the server is not the coordinator, or that the token belongs to another federation.
var errPinMismatch = errors.New("the server is not the coordinator that created the token: its certificate does not " +
	"contain the root document that the token pins. The connection may be intercepted: check the address and the " +
	"token, and do not join until they match")

// verifyPinnedRoot returns the root document (list of trusted keys) from a server's certificate. It checks that the
// document matches the root key pin, and that it lists the certificate's key.
func verifyPinnedRoot(c *x509.Certificate, pin wire.RootPin) ([]byte, error) {
	for _, e := range c.Extensions {
		_, text, is := bytes.Cut(e.Value, []byte(rootCommentPrefix))
		if !is || e.Id.String() != commentExtensionOID {
			continue
		}
		p, err := base64.StdEncoding.DecodeString(string(text))
		if err != nil {
			return nil, errPinMismatch
		}
		d, err := wire.DecodeAndVerifyRootDocument(p)
		if err != nil || d.RootPin() != pin {
			return nil, errPinMismatch
		}
		if !slices.ContainsFunc(d.CoordinatorKeys(),
			func(k wire.SigningPublicKey) bool { return k.Ed25519().Equal(c.PublicKey) }) {
			return nil, errPinMismatch
		}
		return p, nil
	}
	return nil, errPinMismatch
}

// Object identifier and text prefix of the certificate extension netscape-comment, which contains the root document
// (list of trusted keys). Package enrol uses the same values.
const (
	commentExtensionOID = "2.16.840.1.113730.1.13"
	rootCommentPrefix   = "fedmesh root "
)

// VerifiedAdmission is the coordinator's answer to an enrolment request after all checks have succeeded.
type VerifiedAdmission struct {
	wire.EnrolmentAnswer
	Document      wire.RootDocument
	EncodedAnswer []byte // encoding of the answer as received
}

// verifyAdmission decodes the coordinator's answer and checks it against the server's root document (list of trusted
// keys) and the device's keys.
func verifyAdmission(p, root []byte, token *wire.EnrolmentToken, k *DeviceKeys) (*VerifiedAdmission, error) {
	a, err := wire.DecodeEnrolmentAnswer(p)
	if err != nil {
		return nil, err
	}
	if a.RefusalReason != 0 {
		return nil, joinRefusalError(a.RefusalReason)
	}
	if root != nil && !bytes.Equal(root, a.RootDocument) {
		return nil, errors.New("the root document in the coordinator's reply differs from the root document in its " +
			"TLS certificate")
	}
	is, err := CheckAdmission(&a, token.Pin, k)
	if err == nil {
		is.EncodedAnswer = p
	}
	return is, err
}

// CheckAdmission checks the coordinator's answer against the pinned root key and the device's keys.
func CheckAdmission(a *wire.EnrolmentAnswer, pin wire.RootPin, k *DeviceKeys) (*VerifiedAdmission, error) {
	d, err := wire.DecodeAndVerifyRootDocument(a.RootDocument)
	if err != nil {
		return nil, err
	}
	if d.RootPin() != pin {
		return nil, errPinMismatch
	}
	authority, err := x509.ParseCertificate(a.CACertificate)
	if err != nil {
		return nil, fmt.Errorf("invalid certificate of the certificate authority: %w", err)
	}
	leaf, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return nil, fmt.Errorf("invalid certificate: %w", err)
	}
	switch {
	case sha256.Sum256(a.CACertificate) != d.CACertificateHash:
		return nil, errors.New("the certificate authority does not match the root document")
	case leaf.CheckSignatureFrom(authority) != nil:
		return nil, errors.New("the device's certificate is not signed by the federation's certificate authority")
	case !k.TLSKey.PublicKey.Equal(leaf.PublicKey):
		return nil, errors.New("the device's certificate was issued for a different key")
	}
	return &VerifiedAdmission{EnrolmentAnswer: *a, Document: d}, nil
}

// joinRefusalError returns an error that explains why the coordinator refused the device and how to fix it.
func joinRefusalError(r wire.EnrolmentRefusalReason) error {
	const again = "; create a new token on the coordinator with: coordinator enrol --device ID"
	why := map[wire.EnrolmentRefusalReason]string{
		wire.EnrolmentUnknownToken: "unknown token: the token has expired, was replaced, or belongs to a different " +
			"device" +
			again,
		wire.EnrolmentTooManyTries: "too many failed attempts from this address: wait two minutes",
		wire.EnrolmentTokenUsed: "the token was already used by another device, or by this device before the device " +
			"was removed from the list of agents; if none of your devices has used the token, revoke the device that " +
			"has: coordinator devices revoke ID" + again,
		wire.EnrolmentOtherKeyListed: "this device is in the list of agents with a different key; to join with a new " +
			"key, or with a new device of the same name, run on the coordinator: coordinator devices rotate ID",
		wire.EnrolmentKeyOfOtherDevice: "this device's key is in the list of agents under a different name; to " +
			"rename the device, run on the coordinator: coordinator devices rename OLD NEW",
		wire.EnrolmentDeviceRevoked: "this device is revoked by the federation's root document",
		wire.EnrolmentStorageFailed: "the coordinator cannot add the device to the list of agents (see the " +
			"coordinator's log for the reason); run the same command again to retry",
	}[r]
	return fmt.Errorf("the coordinator rejected the request to join: %s", why)
}
