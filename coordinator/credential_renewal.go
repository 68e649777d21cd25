package coordinator

import (
	"context"
	"time"

	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/wire"
)

// A device gets another key or certificate every ten seconds at most, and all of them together renewMost in that time:
// each is a signature and, with a key, a write of the list.
const (
	renewEvery = 10 * time.Second
	renewMost  = 200
	// renewTime bounds the work on a request. A device asks again.
	renewTime = 10 * time.Second
)

// checkRenewal has the signatures of a request for another key or certificate checked beside the owner. The key that
// has signed the envelope need not be in the list yet: then the one that is vouches for it.
func (c *Coordinator) checkRenewal(agent wire.AgentID, e wire.Envelope) error {
	m, err := wire.DecodeRenewalRequest(e.Body)
	if err != nil {
		return err
	}
	if c.cfg.RenewCredentials == nil {
		return host.NewDropError(DropForeign, "a %s, but keys and certificates are made elsewhere", e.Type)
	}
	listed, signatures := wire.SigningPublicKey(c.keyOf(agent)), c.cfg.Signatures
	vouched := false
	c.signatureCheckPool.Do(func() {
		err = e.VerifyBy(signatures, m.NewKey.Ed25519())
		vouched = err == nil && m.IsVouchedByListedKey(listed, c.cfg.Federation, agent)
	}, func() {
		switch {
		case err == nil && !vouched:
			err = host.NewDropError(DropSignature,
				"neither the key of a %s is in the list, nor does one vouch for it that is",
				e.Type)
		case err != nil:
			err = host.NewDropError(DropSignature, "%w", err)
		default:
			err = c.renewCredentials(agent, &e, &m)
		}
		c.reportDropped(mqtt.KindStatus, agent, err)
	})
	return nil
}

// renewCredentials has a request carried out beside the owner, and answers it.
func (c *Coordinator) renewCredentials(agent wire.AgentID, e *wire.Envelope, m *wire.RenewalRequest) error {
	source, now := senderTypeKey{agent, e.Type}, messageSerial{e.Epoch, e.Sequence}
	if last := c.newestSerialBySender[source]; now.epoch < last.epoch || now.epoch == last.epoch &&
		now.sequence <= last.sequence {
		return host.NewDropError(DropReplayed, "%s with epoch %d sequence %d, after %d and %d", e.Type, now.epoch,
			now.sequence,
			last.epoch, last.sequence)
	}
	c.newestSerialBySender[source] = now
	if !c.renewalThrottle.allow(agent, c.ownerLoop.Now()) {
		return host.NewDropError(DropOverflow, "more than one %s in %s, or %d of all devices", e.Type, renewEvery,
			renewMost)
	}
	digest := e.Digest()
	c.ownerLoop.Go(func() {
		ctx, cancel := context.WithTimeout(c.ownerLoop.Context(), renewTime)
		defer cancel()
		answer, vouched := c.cfg.RenewCredentials(ctx, agent, m)
		answer.RequestDigest = digest
		if vouched {
			c.ownerLoop.RunOnLoop(func() { c.sendToAgent(agent, wire.TypeRenewed, 0, 0, answer.Body()) })
		}
	})
	return nil
}
