package doctor

import (
	"crypto/tls"
	"crypto/x509"
	"time"
)

// checkCertificateExpiry checks the expiry of the client certificate for the broker.
func checkCertificateExpiry(r *findingReporter, config *tls.Config, now time.Time) {
	if config == nil || len(config.Certificates) == 0 {
		return
	}
	leaf, err := x509.ParseCertificate(config.Certificates[0].Certificate[0])
	if err != nil {
		r.addFinding("certificate", Bad, "put another file at broker.cert_file", "it cannot be read: %v", err)
		return
	}
	const mend = "an agent that runs and reaches its coordinator renews it, if that has made it; let a device whose " +
		"certificate has ended join again (coordinator devices rotate ID); renew one of your own authority yourself"
	until, left := leaf.NotAfter.UTC().Format(time.DateTime), leaf.NotAfter.Sub(now)
	switch {
	case left <= 0:
		r.addFinding("certificate", Bad, mend, "it expired at %s UTC", until)
	case now.Before(leaf.NotBefore):
		r.addFinding("certificate", Bad, "set the clock", "it does not count before %s UTC",
			leaf.NotBefore.UTC().Format(time.DateTime))
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/6:
		r.addFinding("certificate", Warn, mend, "it expires at %s UTC, in %d days", until, int(left.Hours()/24))
	default:
		r.addGoodFinding("certificate", "it expires at %s UTC, in %d days", until, int(left.Hours()/24))
	}
}
