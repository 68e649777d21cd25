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

// enrolmentService adds devices to a federation's list and removes them. The list is a text file that operators may
// also edit. Changes are serialised, and each one is on disk before the coordinator loads it.
type enrolmentService struct {
	federation      *Federation
	enroller        *enrol.Registrar // nil if enrolment is disabled
	aclUpdateDelays chan time.Duration

	agentListMu sync.Mutex // protects the list of agents
	observerMu  sync.Mutex // serialises Observe calls while enrolment is disabled

	agentListFS store.FS // file system of the list of agents; nil means the real one
}

func (e *enrolmentService) agentListDisk() store.Disk {
	if e.agentListFS == nil {
		return store.LocalDisk
	}
	return store.Disk{FS: e.agentListFS}
}

// startRegistrar starts the registrar, which accepts joining devices over the network until ctx ends. It does nothing
// if enrolment is disabled.
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
	e.federation.o.Logger.Info("waiting for devices to join with a token",
		"listen", at.String(), "url", s.Enrolment.JoinURL)
	go e.watchOpenTokenExpiry(ctx)
	if s.Enrolment.ACLFile != "" {
		e.aclUpdateDelays = make(chan time.Duration, 1)
		go e.keepACLFileCurrent(ctx, s.Enrolment.ACLFile)
	}
	return nil
}

// watchOpenTokenExpiry checks the open token once per minute, so that the registrar reports when the token expires.
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

// forwardEvent passes an event to the registrar, which serialises events, or observes the event directly if enrolment
// is disabled.
func (e *enrolmentService) forwardEvent(event observe.Event) {
	if e.enroller != nil {
		e.enroller.Observe(event)
		return
	}
	e.observerMu.Lock()
	defer e.observerMu.Unlock()
	e.Observe(event)
}

// Observe implements observe.Observer. It passes the event to the event dispatcher and to the audit log.
func (e *enrolmentService) Observe(event observe.Event) {
	e.federation.o.eventDispatcher.Observe(event)
	e.federation.audit.recordEnrolment(event)
}

// Check implements enrol.AgentList. It returns an error if the device cannot be added with the given key.
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

// Has implements enrol.AgentList. It reports whether the list contains the device with exactly this key.
func (e *enrolmentService) Has(id wire.AgentID, key wire.SigningPublicKey) (bool, error) {
	is, err := agentlist.LookupAgentAndKey(e.federation.settings().Identity.AgentListFile, id, nil)
	return is.AgentKey.Equal(key.Ed25519()), err
}

// Admit implements enrol.AgentList. It adds the device to the list, in place of the device replaces if that is set.
func (e *enrolmentService) Admit(ctx context.Context, id wire.AgentID, key wire.SigningPublicKey,
	replaces wire.AgentID) error {
	err := e.editAgentList(ctx, func(path string) error {
		if err := e.Check(id, key, replaces); err != nil { // the list may have changed since the first check
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

// revokeDevice removes a device from the list and ends its broker session. It returns coordinator.ErrUnlisted if the
// device is not in the list. If an earlier revocation failed after the edit, the remaining steps are repeated.
func (e *enrolmentService) revokeDevice(ctx context.Context, id wire.AgentID) error {
	if id.ValidateNonCoordinator() != nil {
		return unlistedAgentError(id) // id may be the coordinator, whose session must continue
	}
	if e.enroller != nil { // otherwise the device could return with a token
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
	e.federation.o.Logger.Warn("device revoked", "agent", id)
	return nil
}

// editAgentList changes the list of agents and makes the coordinator load it.
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
	// sessionEndDelay is the delay before a revoked device's broker session is ended. During the delay the device
	// receives the notification of the revocation.
	sessionEndDelay = 2 * time.Second
	// sessionEndTimeout is the time limit for ending a session at the broker.
	sessionEndTimeout = 10 * time.Second
)

// endBrokerSession ends a device's session by connecting to the broker with the device's client id and a temporary
// certificate. A broker closes the older of two sessions of one client. If the device missed the notification, it
// reconnects, sends a hello and is rejected, before the access rules exclude it.
func (e *enrolmentService) endBrokerSession(ctx context.Context, id wire.AgentID) {
	s := e.federation.settings()
	err := func() error {
		if e.enroller == nil {
			return nil // no certificate can be issued without a registrar
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
		e.federation.o.Logger.Warn("cannot end a revoked device's session at the broker; the coordinator ignores the "+
			"device's messages",
			"agent", id, "err", err)
	}
}

const (
	// aclUpdateInterval is the minimum time between two rewrites of the access rules, because Mosquitto does not
	// process messages while it reads them.
	aclUpdateInterval = 10 * time.Second
	// revokedACLDelay is the delay before the access rules exclude a revoked device. It gives the device time to
	// reconnect and to be notified of the revocation.
	revokedACLDelay = 15 * time.Second
)

// scheduleACLUpdate schedules a rewrite of the access rules after a delay.
func (e *enrolmentService) scheduleACLUpdate(after time.Duration) {
	if e.aclUpdateDelays == nil {
		return
	}
	select {
	case e.aclUpdateDelays <- after:
	default: // an update is already scheduled
	}
}

// keepACLFileCurrent writes Mosquitto's access rules at the start and after each change of the list.
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

// writeACLFile writes the rules unless the file already contains them.
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

// AccessRulesWritten reports that the broker's access rules were written to the file in enrol.acl, or that the write
// failed.
type AccessRulesWritten struct {
	ACLFile string
	Err     error // nil on success; a failed write is retried
}

// Describe implements observe.Event.
func (e AccessRulesWritten) Describe(d *observe.EventDescription) {
	const condition = "access rules"
	if e.Err == nil {
		d.Log(observe.Info, "wrote the broker's access rules", "file", e.ACLFile)
		d.ResolveCondition(condition)
		return
	}
	d.Log(observe.Error, "cannot write the broker's access rules", "file", e.ACLFile, "err", e.Err)
	d.RaiseCondition(condition,
		fmt.Sprintf("cannot write the broker's access rules, so new devices have no access and revoked devices still "+
			"have access: %v", e.Err), "make the file in enrol.acl writable; the coordinator retries the write")
}
