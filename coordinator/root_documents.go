package coordinator

import (
	"context"
	"crypto/ed25519"
	"fmt"

	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/publish"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/wire"
)

// rootDocumentVersion returns the version of the root document (the signed list of trusted keys) that is in force.
func (c *Config) rootDocumentVersion() wire.RootVersion {
	if len(c.RootDocuments) == 0 {
		return wire.FirstRootVersion
	}
	return c.RootDocuments[len(c.RootDocuments)-1].Version
}

// verifyAndOpenAnnouncement verifies and parses an announcement. The announcement must be signed with the coordinator's
// own key or with another coordinator key in the root document. The error is the reason for dropping the announcement.
func (c *Coordinator) verifyAndOpenAnnouncement(envelope []byte) (wire.Envelope, error) {
	e, err := wire.ParseEnvelope(envelope)
	switch {
	case err != nil:
		return e, err
	case e.Federation != c.cfg.Federation || e.Sender != wire.CoordinatorID || e.Type != wire.TypeAnnouncement:
		return e, host.NewMessageDropError(devices.DropForeign,
			"unexpected %s on the announcement topic: sent by %s in federation %s", e.Type, e.Sender, e.Federation)
	}
	trusted := []ed25519.PublicKey{c.cfg.Key.Public().(ed25519.PublicKey)}
	if n := len(c.cfg.RootDocuments); n > 0 {
		for _, k := range c.cfg.RootDocuments[n-1].CoordinatorKeys() {
			trusted = append(trusted, k.Ed25519())
		}
	}
	for _, key := range trusted {
		if err = e.VerifyWithScheme(c.cfg.Signatures, key); err == nil {
			return e, nil
		}
	}
	return e, host.NewMessageDropError(devices.DropSignature,
		"%w: the announcement is signed with an unknown key",
		err)
}

// SetRootDocuments replaces the root documents, which must be on disk already, and publishes them. roots is sorted by
// version, and the next announcement refers to the last element. SetRootDocuments returns an error if the owner
// goroutine does not respond before ctx ends.
func (c *Coordinator) SetRootDocuments(ctx context.Context, roots []wire.RootDocument) error {
	return c.runOnOwnerLoop(ctx, func() {
		c.cfg.RootDocuments = roots
		c.publishRootDocuments()
	})
}

// publishRootDocuments publishes all versions except the first as retained messages. Devices receive the first version
// when they enrol, and install later ones in sequence. It is called after each connect.
func (c *Coordinator) publishRootDocuments() {
	for i := range c.cfg.RootDocuments {
		d := &c.cfg.RootDocuments[i]
		if d.Version == wire.FirstRootVersion {
			continue
		}
		if err := c.conn.Publish(publish.RetainedMessage(c.cfg.Topics.RootDocument(d.Version), d.Bytes())); err != nil {
			c.cfg.Logger.Debug("cannot send a root document; retrying after the next connection to the broker",
				"version", d.Version,
				"err", err)
		}
	}
}

// checkRootDocuments returns an error if the root documents are not consecutive versions for the federation.
func (c *Config) checkRootDocuments() error {
	for i := range c.RootDocuments {
		if d := &c.RootDocuments[i]; d.Federation != c.Federation || i > 0 &&
			d.Version != c.RootDocuments[i-1].Version+1 {
			return fmt.Errorf("unexpected root document with version %d of federation %s: the documents must have "+
				"consecutive versions and belong to this federation", d.Version,
				d.Federation)
		}
	}
	return nil
}
