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
		r.addFinding("certificate", Bad, "replace the file in broker.cert_file",
			"cannot read the certificate: %v", err)
		return
	}
	const mend = "a connected agent automatically renews a certificate that its coordinator issued; if the " +
		"certificate has expired, let the device join again (coordinator devices rotate ID); renew a certificate of " +
		"your own authority yourself"
	until, left := leaf.NotAfter.UTC().Format(time.DateTime), leaf.NotAfter.Sub(now)
	switch {
	case left <= 0:
		r.addFinding("certificate", Bad, mend, "expired at %s UTC", until)
	case now.Before(leaf.NotBefore):
		r.addFinding("certificate", Bad, "set the clock", "not valid before %s UTC",
			leaf.NotBefore.UTC().Format(time.DateTime))
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/6:
		r.addFinding("certificate", Warn, mend, "expires at %s UTC, in %d days", until, int(left.Hours()/24))
	default:
		r.addGoodFinding("certificate", "expires at %s UTC, in %d days", until, int(left.Hours()/24))
	}
}
