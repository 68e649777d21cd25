package identity

import (
	"encoding/base64"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/wire"
)

var certificateExpires = observe.OptionalGauge("certificate_expires_timestamp_seconds",
	"Expiry of the device's broker certificate.")

// Names of conditions.
const (
	certificateCondition = "certificate"
	renewalCondition     = "renewal"
)

// CertificateExpiryValue is the name of the status value with the expiry time of the broker certificate.
const CertificateExpiryValue = "certificate expiry"

// CertificateUsed reports which certificate the next connection to the broker uses.
type CertificateUsed struct {
	ExpiresAt time.Time
	IsRenewal bool // true if the coordinator issued the certificate as a replacement
}

// Describe implements observe.Event.
func (e CertificateUsed) Describe(d *observe.EventDescription) {
	d.SetGauge(certificateExpires, observe.UnixSeconds(e.ExpiresAt))
	d.ShowStatusValue(CertificateExpiryValue, e.ExpiresAt)
	d.ResolveCondition(certificateCondition)
	if e.IsRenewal {
		d.Log(observe.Info, "certificate renewed", "expires", e.ExpiresAt.UTC().Format(time.DateTime))
		d.ResolveCondition(renewalCondition)
	}
}

// CertificateExpiring reports repeatedly that the certificate has expired or expires soon and that no replacement is
// available.
type CertificateExpiring struct {
	ExpiresAt time.Time
	TimeLeft  time.Duration
	// reason of the coordinator's last refusal; 0 if the coordinator has not answered
	LastRefusal wire.RenewalRefusalReason
}

// Describe implements observe.Event.
func (e CertificateExpiring) Describe(d *observe.EventDescription) {
	cause := "the coordinator has not answered the request for a new certificate"
	remedy := "check that the coordinator is running, and check the connection to the broker with `agentd doctor`"
	if e.LastRefusal != 0 {
		cause, remedy = "the coordinator refused a new certificate: "+RenewRefusalText(e.LastRefusal),
			"check the coordinator's log"
	}
	if e.TimeLeft <= 0 {
		remedy = state.JoinAgain
	}
	remedy += "; if another authority issued the certificate, replace the file broker.cert_file"
	attributes := []any{"expires", e.ExpiresAt.UTC().Format(time.DateTime), "cause", cause}
	if e.TimeLeft <= 0 {
		d.Log(observe.Warn, "certificate has expired", attributes...)
		d.RaiseCondition(certificateCondition, "the certificate for the broker has expired: "+cause, remedy)
		return
	}
	d.Log(observe.Warn, "certificate expires soon", attributes...)
	d.RaiseCondition(certificateCondition,
		"the certificate for the broker expires in "+FormatDays(e.TimeLeft)+": "+cause, remedy)
}

// FormatDays formats a duration in whole days, or to the second if it is less than two days.
func FormatDays(d time.Duration) string {
	if d < 48*time.Hour {
		return d.Round(time.Second).String()
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// RenewalRefused reports that the coordinator has refused a new key or certificate.
type RenewalRefused struct{ Reason wire.RenewalRefusalReason }

// Describe implements observe.Event. A new key or certificate resolves the condition.
func (e RenewalRefused) Describe(d *observe.EventDescription) {
	remedy := state.JoinAgain
	switch e.Reason {
	case wire.RenewalNoAuthority:
		remedy = "replace the certificate in broker.cert_file"
	case wire.RenewalDeviceRevoked:
		remedy = "to admit the device again, run `coordinator enrol --device ID` at the coordinator, then run the " +
			"printed command on this device"
	case wire.RenewalKeyOfOtherDevice, wire.RenewalStorageFailed:
	}
	d.Log(observe.Error, "coordinator refused a new key or certificate", "reason", e.Reason,
		"cause", RenewRefusalText(e.Reason))
	d.RaiseCondition(renewalCondition,
		"the coordinator refused a new key or certificate for this device: "+RenewRefusalText(e.Reason),
		remedy)
}

// RenewRefusalText describes why the coordinator has refused a new key or certificate.
func RenewRefusalText(why wire.RenewalRefusalReason) string {
	return map[wire.RenewalRefusalReason]string{
		wire.RenewalKeyOfOtherDevice: "the new key is already registered for another device",
		wire.RenewalDeviceRevoked:    "the federation's root document revokes this device",
		wire.RenewalNoAuthority:      "the coordinator does not issue certificates",
		wire.RenewalStorageFailed: "the coordinator could not store the new key or certificate (see the " +
			"coordinator's log)",
	}[why]
}

// DeviceKeyReplaced reports that the coordinator has accepted a new key of this device. The agent uses it after a
// restart.
type DeviceKeyReplaced struct{ Key wire.SigningPublicKey }

// Describe implements observe.Event.
func (e DeviceKeyReplaced) Describe(d *observe.EventDescription) {
	d.Log(observe.Warn, "device key replaced", "key", base64.StdEncoding.EncodeToString(e.Key.Ed25519()))
	d.ResolveCondition(renewalCondition)
}
