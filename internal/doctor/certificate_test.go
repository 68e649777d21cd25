package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"strings"
	"testing"
	"time"
)

// TestCertificate checks that the doctor reports when the client certificate expires. In the last sixth of the
// certificate's validity, the doctor must warn.
func TestCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Unix(1_790_000_000, 0)
	const day = 24 * time.Hour
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(60 * day)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	with := func(p []byte) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{p}}}}
	}
	for name, tt := range map[string]struct {
		config *tls.Config
		at     time.Duration
		state  FindingStatus
		says   string
	}{
		"none":         {nil, 0, "", ""},
		"fresh":        {with(der), day, Good, "the certificate expires at 2026-11-20 14:13:20 UTC, in 59 days"},
		"the last":     {with(der), 51 * day, Warn, "in 9 days"},
		"ended":        {with(der), 61 * day, Bad, "expired at 2026-11-20"},
		"not yet":      {with(der), -day, Bad, "not valid before 2026-09-21"},
		"no such file": {with(der[:9]), 0, Bad, "cannot read the certificate"},
	} {
		var found Finding
		checkCertificateExpiry(&findingReporter{showFinding: func(f Finding) { found = f }}, tt.config, from.Add(tt.at))
		if found.State != tt.state || !strings.Contains(found.Observation, tt.says) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
