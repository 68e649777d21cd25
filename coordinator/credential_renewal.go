package coordinator

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// renewalTimeout is the time limit for handling a request for a new key or certificate. Devices repeat their requests.
const renewalTimeout = 10 * time.Second

// checkRenewalSignatures verifies the signatures of a request for a new key or certificate on a worker goroutine. If
// the signing key is not in the list of agents yet, the request must also be signed with the listed key.
func (c *Coordinator) checkRenewalSignatures(agent wire.AgentID, e wire.Envelope) error {
	m, err := wire.DecodeCredentialRenewalRequest(e.Body)
	if err != nil {
		return err
	}
	if c.cfg.RenewCredentials == nil {
		return host.NewMessageDropError(devices.DropForeign,
			"unexpected %s: this coordinator does not renew keys and certificates",
			e.Type)
	}
	listed, signatures := wire.SigningPublicKey(c.messageChecker.AgentKey(agent)), c.cfg.Signatures
	vouched := false
	c.signatureCheckPool.RunInOrder(func() {
		err = e.VerifyWithScheme(signatures, m.NewKey.Ed25519())
		vouched = err == nil && m.IsVouchedByListedKey(listed, c.cfg.Federation, agent)
	}, func() {
		switch {
		case err == nil && !vouched:
			err = host.NewMessageDropError(devices.DropSignature,
				"the key in a %s is not in the list of agents, and the request is not signed with the listed key",
				e.Type)
		case err != nil:
			err = host.NewMessageDropError(devices.DropSignature, "%w", err)
		default:
			err = c.renewCredentials(agent, &e, &m)
		}
		c.reportDroppedMessage(mqtt.KindAgentToCoordinator, agent, err)
	})
	return nil
}

// renewCredentials handles a verified request for a new key or certificate in a job and sends the answer.
func (c *Coordinator) renewCredentials(agent wire.AgentID, e *wire.Envelope, m *wire.CredentialRenewalRequest) error {
	if err := c.messageChecker.AcceptRenewalRequest(agent, e); err != nil {
		return err
	}
	digest := e.Digest()
	c.ownerLoop.Go(func() {
		ctx, cancel := context.WithTimeout(c.ownerLoop.Context(), renewalTimeout)
		defer cancel()
		answer, vouched := c.cfg.RenewCredentials(ctx, agent, m)
		answer.RequestDigest = digest
		if vouched {
			c.ownerLoop.RunOnLoop(func() { c.sendToAgent(agent, wire.TypeRenewalAnswer, 0, 0, answer.Body()) })
		}
	})
	return nil
}
