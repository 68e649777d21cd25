package coordinatord

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// enrolmentService is how devices come into a federation's list, and leave it. The list is a text that people may edit,
// too: one change after another, each on the disk before the coordinator takes it.
type enrolmentService struct {
	federation      *Federation
	enroller        *enrol.Registrar // nil where nobody can join
	aclUpdateDelays chan time.Duration

	agentListMu sync.Mutex // of the list
	observerMu  sync.Mutex // of events, where there is no desk

	agentListFS store.FS // where the list is; the machine's unless set
}

func (e *enrolmentService) agentListDisk() store.Disk {
	if e.agentListFS == nil {
		return store.LocalDisk
	}
	return store.Disk{FS: e.agentListFS}
}

// startRegistrar opens the desk and its listener, until ctx ends.
func (e *enrolmentService) startRegistrar(ctx context.Context) error {
	s := e.federation.settings()
	if !s.Enrolment.IsEnabled() {
		return nil
	}
	cfg, err := s.EnrolmentConfig()
	if err != nil {
		return err
	}
	cfg.List, cfg.Observer, cfg.Now = e, e, time.Now
	cfg.StateDir = e.federation.stateDir
	if e.enroller, err = enrol.Open(cfg); err != nil {
		return err
	}
	at, err := e.enroller.ListenForJoins(ctx, s.Enrolment.Listen, e.federation.o.Logger)
	if err != nil {
		return err
	}
	e.federation.o.Logger.Info("devices with a token may join", "listen", at.String(), "url", s.Enrolment.JoinURL)
	go e.watchOpenTokenExpiry(ctx)
	if s.Enrolment.ACLFile != "" {
		e.aclUpdateDelays = make(chan time.Duration, 1)
		go e.keepACLFileCurrent(ctx, s.Enrolment.ACLFile)
	}
	return nil
}

// watchOpenTokenExpiry has the desk tell when an open token expires.
func (e *enrolmentService) watchOpenTokenExpiry(ctx context.Context) {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for ctx.Err() == nil {
		e.enroller.OpenJoinUntil()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// forwardEvent tells an event that is not the desk's.
func (e *enrolmentService) forwardEvent(event observe.Event) {
	if e.enroller != nil {
		e.enroller.Observe(event)
		return
	}
	e.observerMu.Lock()
	defer e.observerMu.Unlock()
	e.Observe(event)
}

// Observe implements observe.Observer.
func (e *enrolmentService) Observe(event observe.Event) {
	e.federation.o.eventDispatcher.Observe(event)
	e.federation.audit.recordEnrolment(event)
}

// Check implements enrol.AgentList.
func (e *enrolmentService) Check(id wire.AgentID, key wire.SigningPublicKey, replaces wire.AgentID) error {
	if _, err := keys.ParsePublic(keys.FormatPublic(key.Ed25519())); err != nil {
		return fmt.Errorf("%w: %w", enrol.ErrOther, err)
	}
	is, err := agentlist.LookupAgentAndKey(e.federation.settings().Identity.AgentListFile, id, key.Ed25519())
	switch {
	case err != nil:
		return err
	case is.AgentKey != nil && !is.AgentKey.Equal(key.Ed25519()) && id != replaces:
		return fmt.Errorf("%s: %w", id, enrol.ErrListed)
	case is.KeyHolder != "" && is.KeyHolder != id && is.KeyHolder != replaces:
		return fmt.Errorf("%w (%s)", enrol.ErrOther, is.KeyHolder)
	}
	return nil
}

// Has implements enrol.AgentList.
func (e *enrolmentService) Has(id wire.AgentID, key wire.SigningPublicKey) (bool, error) {
	is, err := agentlist.LookupAgentAndKey(e.federation.settings().Identity.AgentListFile, id, nil)
	return is.AgentKey.Equal(key.Ed25519()), err
}

// Admit implements enrol.AgentList.
func (e *enrolmentService) Admit(ctx context.Context, id wire.AgentID, key wire.SigningPublicKey,
	replaces wire.AgentID) error {
	err := e.editAgentList(ctx, func(path string) error {
		if err := e.Check(id, key, replaces); err != nil { // the list may have changed since it was checked
			return err
		}
		is, err := agentlist.LookupAgentAndKey(path, id, key.Ed25519())
		if err != nil || is.KeyHolder == id && (replaces == "" || replaces == id) {
			return err
		}
		return agentlist.EditListFile(e.agentListDisk(), path, []wire.AgentID{id, replaces}, id, key.Ed25519())
	})
	e.scheduleACLUpdate(0)
	return err
}

// revokeDevice takes a device from the list, and ends its session with the broker. The error is that it is not there,
// coordinator.ErrUnlisted, or could not be taken away. It does all but the edit where the text does not have the device
// any more: a revocation may have failed half way, and the device still be heard.
func (e *enrolmentService) revokeDevice(ctx context.Context, id wire.AgentID) error {
	if id.ValidateNonCoordinator() != nil {
		return unlistedAgentError(id) // and the session of the coordinator's own name is not to be ended
	}
	if e.enroller != nil { // else it could come back with a token
		if err := e.enroller.RemoveTokensOfDevice(id); err != nil {
			return err
		}
	}
	var there bool
	err := e.editAgentList(ctx, func(path string) error {
		is, err := agentlist.LookupAgentAndKey(path, id, nil)
		if there = is.AgentKey != nil; err != nil || !there {
			return err
		}
		return agentlist.EditListFile(e.agentListDisk(), path, []wire.AgentID{id}, "", nil)
	})
	if err == nil {
		go e.endBrokerSession(context.WithoutCancel(ctx), id)
	}
	e.scheduleACLUpdate(revokedACLDelay)
	switch {
	case err != nil:
		return err
	case !there:
		return unlistedAgentError(id)
	}
	e.federation.o.Logger.Warn("a device is revoked", "agent", id)
	return nil
}

// editAgentList changes the list of agents, and has the coordinator take it.
func (e *enrolmentService) editAgentList(ctx context.Context, edit func(path string) error) error {
	e.agentListMu.Lock()
	defer e.agentListMu.Unlock()
	s := e.federation.settings()
	if err := edit(s.Identity.AgentListFile); err != nil {
		return err
	}
	if err := e.federation.publishStateToReplicas(ctx); err != nil {
		return err
	}
	return e.federation.reloadAgentList(ctx, s)
}

const (
	// sessionEndDelay is how much later the session of a revoked device is ended: it is told over that.
	sessionEndDelay = 2 * time.Second
	// sessionEndTimeout is how long the broker has for ending a session.
	sessionEndTimeout = 10 * time.Second
)

// endBrokerSession ends a device's session at the broker by connecting under its name, with a certificate of our own: a
// broker closes the older of two sessions of one client. The device was told before. If that was lost, it connects
// again, says hello, and is told that it is not heard, before the rules keep it out.
func (e *enrolmentService) endBrokerSession(ctx context.Context, id wire.AgentID) {
	s := e.federation.settings()
	err := func() error {
		if e.enroller == nil {
			return nil // no certificate can be made
		}
		cfg, err := s.EnrolmentConfig()
		if err != nil {
			return err
		}
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		name := cfg.MakeBrokerUserName(id)
		der, err := cfg.CertificateAuthority.IssueClientCertificate(name, &key.PublicKey, time.Now(), time.Hour)
		if err != nil {
			return err
		}
		o, _, err := s.Broker.SessionOptions(name)
		if err != nil || o.TLS == nil {
			return err
		}
		o.Username, o.Password, o.RenewCredentials = name, "", nil
		o.TLS.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
		<-time.After(sessionEndDelay)
		ctx, cancel := context.WithTimeout(ctx, sessionEndTimeout)
		defer cancel()
		conn, err := mqtt.Dial(ctx, o)
		if err != nil {
			return err
		}
		defer conn.Close()
		for {
			select {
			case x := <-conn.Events():
				if _, up := x.(mqtt.LinkUp); up {
					return nil
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}()
	if err != nil {
		e.federation.o.Logger.Warn("the session of a revoked device was not ended at the broker; its messages are "+
			"dropped",
			"agent", id, "err", err)
	}
}

const (
	// aclUpdateInterval is the least time between two versions of the access rules: while Mosquitto reads them, it
	// stands still.
	aclUpdateInterval = 10 * time.Second
	// revokedACLDelay is how much later a revoked device loses its access: it has connected again by then, and was
	// told.
	revokedACLDelay = 15 * time.Second
)

// scheduleACLUpdate says that the access rules are to be written anew, after a time.
func (e *enrolmentService) scheduleACLUpdate(after time.Duration) {
	if e.aclUpdateDelays == nil {
		return
	}
	select {
	case e.aclUpdateDelays <- after:
	default: // they are about to be
	}
}

// keepACLFileCurrent writes Mosquitto's access rules at the start and whenever the list has changed.
func (e *enrolmentService) keepACLFileCurrent(ctx context.Context, path string) {
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	failing := false
	for {
		changed, err := e.writeACLFile(path)
		if err != nil {
			e.scheduleACLUpdate(0)
		}
		if changed || err != nil || failing {
			e.federation.o.eventDispatcher.Observe(AccessRulesWritten{path, err})
		}
		failing = err != nil
		if (changed || err != nil) && !wait(aclUpdateInterval) {
			return
		}
		select {
		case after := <-e.aclUpdateDelays:
			if after > 0 && !wait(after) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// writeACLFile writes the rules, unless the file has them already.
func (e *enrolmentService) writeACLFile(path string) (changed bool, err error) {
	s := e.federation.settings()
	text, err := e.federation.o.RenderMosquittoACL(s)
	if err != nil {
		return false, err
	}
	if is, err := os.ReadFile(path); err == nil && bytes.Equal(is, text) {
		return false, nil
	}
	return true, store.LocalDisk.WriteFileDurably(path, text, 0o640)
}

// AccessRulesWritten: the access rules of the broker were written to the file in enrol.acl, or could not be written.
type AccessRulesWritten struct {
	ACLFile string
	Err     error // the write is tried again
}

// Describe implements observe.Event.
func (e AccessRulesWritten) Describe(d *observe.EventDescription) {
	const condition = "access rules"
	if e.Err == nil {
		d.Log(observe.Info, "the broker's access rules are written", "file", e.ACLFile)
		d.ResolveCondition(condition)
		return
	}
	d.Log(observe.Error, "cannot write the broker's access rules", "file", e.ACLFile, "err", e.Err)
	d.RaiseCondition(condition,
		fmt.Sprintf("cannot write the broker's access rules, so devices that have joined are kept out, "+
			"and revoked devices are not: %v", e.Err), "make the file in enrol.acl writable: the write is tried again")
}
