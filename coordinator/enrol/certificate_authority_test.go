package enrol

import (
	"crypto/x509"
	"testing"
	"time"
)

// TestClocks checks the validity periods of certificates. The certificates of the authority and the broker are valid
// from 1970, for devices without a clock. A client certificate is valid from shortly before its issue, for a broker
// with a slow clock, and for the requested time.
func TestClocks(t *testing.T) {
	made := time.Unix(1_790_000_000, 0)
	a, key := newAuthority(t), newDevice(t, 0).tls.PublicKey
	parse := func(der []byte, err error) *x509.Certificate {
		t.Helper()
		var c *x509.Certificate
		if err == nil {
			c, err = x509.ParseCertificate(der)
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	broker := parse(a.IssueServerCertificate("gw.example", &key, made))
	for name, c := range map[string]*x509.Certificate{"authority": a.Certificate, "broker": broker} {
		if c.NotBefore.Unix() != 0 {
			t.Errorf("the certificate of the %s counts from %s", name, c.NotBefore)
		}
	}
	for life, back := range map[time.Duration]time.Duration{
		100 * time.Second: time.Second, 365 * 24 * time.Hour: 24 * time.Hour,
	} {
		c := parse(a.IssueClientCertificate("plant_7-press-01", &key, made, life))
		if !c.NotBefore.Equal(made.Add(-back)) || !c.NotAfter.Equal(made.Add(life)) {
			t.Errorf("a life of %s is from %s to %s", life, c.NotBefore, c.NotAfter)
		}
	}
}
