package coordinatord

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/wire"
)

// errUnknownRenewalKey reports that the list of agents contains neither the requested key nor the key that signed the
// renewal request.
var errUnknownRenewalKey = errors.New("neither the requested new key nor the key that signed the request is in the " +
	"list of agents")

// renewCredentials gives a device a new key in the list of agents, a new certificate, or both. It implements
// coordinator.Config.Renew, and a repeated request does not change the list again.
func (e *enrolmentService) renewCredentials(ctx context.Context, id wire.AgentID,
	m *wire.CredentialRenewalRequest) (answer wire.CredentialRenewalAnswer,
	vouched bool) {
	event := enrol.CredentialsRenewed{Agent: id}
	why, err := e.replaceListedKey(ctx, id, m, &event)
	if errors.Is(err, errUnknownRenewalKey) {
		return answer, false
	}
	if why == 0 && m.TLSKey != nil {
		answer.Certificate, why, err = e.issueCertificate(id, m, &event)
	}
	if why != 0 {
		e.forwardEvent(enrol.RenewalRefused{Agent: id, Reason: why, Err: err})
		return wire.CredentialRenewalAnswer{RefusalReason: why}, true
	}
	e.forwardEvent(event)
	return answer, true
}

// replaceListedKey replaces the key in the list with the requested one. It returns after the list is on disk and the
// coordinator has loaded it.
func (e *enrolmentService) replaceListedKey(ctx context.Context, id wire.AgentID, m *wire.CredentialRenewalRequest,
	event *enrol.CredentialsRenewed) (
	wire.RenewalRefusalReason, error) {
	if e.enroller != nil && e.enroller.IsDeviceRevoked(id) {
		return wire.RenewalDeviceRevoked, nil
	}
	if event.KeyChanged = m.ListedKey != (wire.SigningPublicKey{}); !event.KeyChanged {
		is, err := e.Has(id, m.NewKey)
		if err == nil && !is {
			err = errUnknownRenewalKey
		}
		if err != nil {
			return wire.RenewalStorageFailed, err
		}
		return 0, nil
	}
	if err := e.Check(id, m.NewKey, id); errors.Is(err, enrol.ErrOther) {
		return wire.RenewalKeyOfOtherDevice, err
	}
	err := e.editAgentList(ctx, func(path string) error {
		is, err := agentlist.LookupAgentAndKey(path, id, m.NewKey.Ed25519())
		switch event.IsRepeated = is.AgentKey.Equal(m.NewKey.Ed25519()); {
		case err != nil, event.IsRepeated:
			return err
		// the device was revoked in the meantime, or the list was edited by hand
		case !is.AgentKey.Equal(m.ListedKey.Ed25519()):
			return errUnknownRenewalKey
		case is.KeyHolder != "":
			return fmt.Errorf("%w (%s)", enrol.ErrOther, is.KeyHolder)
		}
		return agentlist.EditListFile(e.agentListDisk(), path, []wire.AgentID{id}, id, m.NewKey.Ed25519())
	})
	switch {
	case errors.Is(err, enrol.ErrOther):
		return wire.RenewalKeyOfOtherDevice, err
	case err != nil:
		return wire.RenewalStorageFailed, err
	}
	return 0, nil
}

func (e *enrolmentService) issueCertificate(id wire.AgentID, m *wire.CredentialRenewalRequest,
	event *enrol.CredentialsRenewed) (der []byte,
	why wire.RenewalRefusalReason,
	err error) {
	if e.enroller == nil {
		if event.KeyChanged {
			return nil, 0, nil // without an authority, changing the key is sufficient
		}
		return nil, wire.RenewalNoAuthority, nil
	}
	der, err = e.enroller.RenewCertificate(wire.FederationName(e.federation.settings().Federation), id, m, time.Now())
	if err == nil {
		var leaf *x509.Certificate
		if leaf, err = x509.ParseCertificate(der); err == nil {
			event.CertificateExpiresAt = leaf.NotAfter
		}
	}
	if err != nil {
		return nil, wire.RenewalStorageFailed, err
	}
	return der, 0, nil
}
