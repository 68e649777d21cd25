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
	const mend = "if the federation's coordinator issued the certificate, a connected agent renews it automatically, " +
		"and after it has expired the device must join again (coordinator devices rotate ID); if you issued it, " +
		"renew it yourself"
	until, left := leaf.NotAfter.UTC().Format(time.DateTime), leaf.NotAfter.Sub(now)
	switch {
	case left <= 0:
		r.addFinding("certificate", Bad, mend, "the certificate expired at %s UTC", until)
	case now.Before(leaf.NotBefore):
		r.addFinding("certificate", Bad, "set the clock", "the certificate is not valid before %s UTC",
			leaf.NotBefore.UTC().Format(time.DateTime))
	case left < leaf.NotAfter.Sub(leaf.NotBefore)/6:
		r.addFinding("certificate", Warn, mend, "the certificate expires at %s UTC, in %d days", until,
			int(left.Hours()/24))
	default:
		r.addGoodFinding("certificate", "the certificate expires at %s UTC, in %d days", until, int(left.Hours()/24))
	}
}
