package coordinator

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// renewalTimeout limits the time for a request. A device repeats its request.
const renewalTimeout = 10 * time.Second

// checkRenewal verifies the signatures of a request for another key or certificate beside the owner. If the key that
// has signed the envelope is not in the list yet, the listed key must vouch for it.
func (c *Coordinator) checkRenewal(agent wire.AgentID, e wire.Envelope) error {
	m, err := wire.DecodeRenewalRequest(e.Body)
	if err != nil {
		return err
	}
	if c.cfg.RenewCredentials == nil {
		return host.NewDropError(devices.DropForeign, "a %s, but keys and certificates are made elsewhere", e.Type)
	}
	listed, signatures := wire.SigningPublicKey(c.devices.Key(agent)), c.cfg.Signatures
	vouched := false
	c.signatureCheckPool.Do(func() {
		err = e.VerifyBy(signatures, m.NewKey.Ed25519())
		vouched = err == nil && m.IsVouchedByListedKey(listed, c.cfg.Federation, agent)
	}, func() {
		switch {
		case err == nil && !vouched:
			err = host.NewDropError(devices.DropSignature,
				"neither the key of a %s is in the list, nor does one vouch for it that is",
				e.Type)
		case err != nil:
			err = host.NewDropError(devices.DropSignature, "%w", err)
		default:
			err = c.renewCredentials(agent, &e, &m)
		}
		c.reportDropped(mqtt.KindStatus, agent, err)
	})
	return nil
}

// renewCredentials carries out a request beside the owner, and sends the answer.
func (c *Coordinator) renewCredentials(agent wire.AgentID, e *wire.Envelope, m *wire.RenewalRequest) error {
	if err := c.devices.AcceptRenewal(agent, e); err != nil {
		return err
	}
	digest := e.Digest()
	c.ownerLoop.Go(func() {
		ctx, cancel := context.WithTimeout(c.ownerLoop.Context(), renewalTimeout)
		defer cancel()
		answer, vouched := c.cfg.RenewCredentials(ctx, agent, m)
		answer.RequestDigest = digest
		if vouched {
			c.ownerLoop.RunOnLoop(func() { c.sendToAgent(agent, wire.TypeRenewed, 0, 0, answer.Body()) })
		}
	})
	return nil
}
