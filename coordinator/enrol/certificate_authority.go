package enrol

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/fedmesh/fedmesh/wire"
)

// CertificateAuthority signs the certificates of the broker and its clients. It uses the curve P-256, which all common
// brokers and TLS libraries support.
type CertificateAuthority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// Lifetime is the validity of the certificates of the authority, the broker and the coordinator. They are renewed
// manually.
const Lifetime = 20 * 365 * 24 * time.Hour

// backdated is the maximum time between the start of a device certificate's validity and the issue of the certificate.
// It allows for a slow clock at the broker.
const backdated = 24 * time.Hour

// maxCommonName is the maximum length of a certificate's common name that OpenSSL accepts.
const maxCommonName = 64

// NewCertificateAuthority creates a self-signed authority with the given key.
func NewCertificateAuthority(name string, key *ecdsa.PrivateKey, now time.Time) (*CertificateAuthority, error) {
	a := &CertificateAuthority{Key: key}
	t := certificateTemplate(name, now.Add(Lifetime), key.Public())
	t.IsCA, t.BasicConstraintsValid, t.MaxPathLenZero = true, true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	der, err := x509.CreateCertificate(nil, t, t, key.Public(), key)
	if err == nil {
		a.Certificate, err = x509.ParseCertificate(der)
	}
	return a, err
}

// certificateTemplate returns the fields that all certificates share. Certificates are valid from 1970, so that devices
// without a clock accept them. The serial number is derived from name, expiry and key, so that equal requests yield
// equal certificates.
func certificateTemplate(name string, until time.Time, key any) *x509.Certificate {
	until = until.UTC().Truncate(time.Second)
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		public = nil // CreateCertificate then returns the same error
	}
	serial := sha256.Sum256(append([]byte(name+"\x00"+until.String()+"\x00"), public...))
	serial[0] &= 0x7f
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:16]), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0).UTC(), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// IssueClientCertificate returns a DER certificate for a client of the broker, valid until made plus life. NotBefore is
// set near made, because a device renews its certificate after two thirds of the validity. Equal arguments yield equal
// bytes.
func (a *CertificateAuthority) IssueClientCertificate(name string, key *ecdsa.PublicKey, made time.Time,
	life time.Duration) ([]byte, error) {
	if len(name) > maxCommonName {
		return nil, fmt.Errorf("the name %s has %d characters, but a certificate name is limited to %d: "+
			"choose shorter names for federation and device", name, len(name), maxCommonName)
	}
	t := certificateTemplate(name, made.Add(life), key)
	t.NotBefore = made.Add(-min(life/100, backdated)).UTC().Truncate(time.Second)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return x509.CreateCertificate(nil, t, a.Certificate, key, a.Key)
}

// IssueServerCertificate returns a DER certificate for a broker with the given host name or IP address.
func (a *CertificateAuthority) IssueServerCertificate(host string, key *ecdsa.PublicKey, made time.Time) ([]byte,
	error) {
	t := certificateTemplate("broker", made.Add(Lifetime), key)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{host}
	}
	return x509.CreateCertificate(nil, t, a.Certificate, key, a.Key)
}

// CertificateDigest returns the SHA-256 of the authority's certificate, as in the root document.
func (a *CertificateAuthority) CertificateDigest() wire.Digest {
	return sha256.Sum256(a.Certificate.Raw)
}

// errNotOurs means that the authority's key, its certificate and the root document do not match.
var errNotOurs = errors.New("the certificate authority does not match the root document: " +
	"use the files that `coordinator init` created together")

// checkNamedInRootDocument returns errNotOurs if the root document does not name this authority.
func (a *CertificateAuthority) checkNamedInRootDocument(root *wire.RootDocument) error {
	public, err := x509.MarshalPKIXPublicKey(a.Key.Public())
	if err != nil {
		return err
	}
	if a.CertificateDigest() != root.CACertificateHash || !bytes.Equal(public, a.Certificate.RawSubjectPublicKeyInfo) {
		return errNotOurs
	}
	return nil
}
