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

// CertificateAuthority signs the certificates by which the broker knows its clients, and they know the broker. Its key
// is of the curve P-256, which brokers and their libraries all know.
type CertificateAuthority struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// Lifetime is how long the certificates of the authority, the broker and the coordinator count: a person makes others.
const Lifetime = 20 * 365 * 24 * time.Hour

// backdated is how much earlier than now a device's certificate begins to count, at most: the broker's clock may be
// behind.
const backdated = 24 * time.Hour

// maxCommonName is how many characters OpenSSL makes and reads of a common name.
const maxCommonName = 64

// NewCertificateAuthority makes the certificate of an authority with that key.
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

// certificateTemplate is what all certificates have in common. They count from 1970 on, so that a device without a
// clock of its own takes them. The serial number follows from name, time and key: the same request gets the same
// certificate.
func certificateTemplate(name string, until time.Time, key any) *x509.Certificate {
	until = until.UTC().Truncate(time.Second)
	public, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		public = nil // CreateCertificate says the same
	}
	serial := sha256.Sum256(append([]byte(name+"\x00"+until.String()+"\x00"), public...))
	serial[0] &= 0x7f
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:16]), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0).UTC(), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
}

// IssueClientCertificate returns the certificate of a client of the broker, in DER, for so long a life. A device renews
// it at two thirds of that, so it says when that began. The same arguments give the same bytes.
func (a *CertificateAuthority) IssueClientCertificate(name string, key *ecdsa.PublicKey, made time.Time,
	life time.Duration) ([]byte, error) {
	if len(name) > maxCommonName {
		return nil, fmt.Errorf("%s has %d characters, and a certificate's name has at most %d: give federation and "+
			"device shorter names", name, len(name), maxCommonName)
	}
	t := certificateTemplate(name, made.Add(life), key)
	t.NotBefore = made.Add(-min(life/100, backdated)).UTC().Truncate(time.Second)
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return x509.CreateCertificate(nil, t, a.Certificate, key, a.Key)
}

// IssueServerCertificate returns the certificate of a broker with that name or address, in DER.
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

// CertificateDigest is what the root document says of the authority.
func (a *CertificateAuthority) CertificateDigest() wire.Digest {
	return sha256.Sum256(a.Certificate.Raw)
}

// errNotOurs says that key and certificate of the authority do not belong together, or not to the root document.
var errNotOurs = errors.New("the authority is not the one of the root document: want the files that " +
	"`coordinator init` has made together")

// checkNamedInRootDocument reports why the authority is not the one that the root document names.
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
