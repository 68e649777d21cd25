package coordinatord

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedmesh/fedmesh/agent"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/coordinator"
	"github.com/fedmesh/fedmesh/coordinator/audit"
	"github.com/fedmesh/fedmesh/coordinator/devices"
	"github.com/fedmesh/fedmesh/coordinator/enrol"
	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/coordinatord/agentlist"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorsettings"
	"github.com/fedmesh/fedmesh/internal/coordinatord/coordinatorstatus"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/internal/status"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/internal/testkit/hosts"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/metrics"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// mortal is the file system of a process that is killed when left operations are done. All later operations fail.
type mortal struct {
	store.FS
	left *atomic.Int64
	kill func() // called once, when the process is killed
}

var errKilled = errors.New("killed")

func newMortal(left int, kill func()) *mortal {
	m := &mortal{store.LocalDisk.FS, new(atomic.Int64), kill}
	m.left.Store(int64(left))
	return m
}

func (m *mortal) lives() error {
	n := m.left.Add(-1)
	if n == -1 {
		m.kill()
	}
	if n < 0 {
		return errKilled
	}
	return nil
}

func (m *mortal) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	if flag == os.O_RDONLY {
		return m.FS.OpenFile(path, flag, perm)
	}
	if err := m.lives(); err != nil {
		return nil, err
	}
	f, err := m.FS.OpenFile(path, flag, perm)
	return mortalFile{f, m}, err
}

func (m *mortal) Rename(from, to string) error {
	if err := m.lives(); err != nil {
		return err
	}
	return m.FS.Rename(from, to)
}

func (m *mortal) SyncDir(dir string) error {
	if err := m.lives(); err != nil {
		return err
	}
	return m.FS.SyncDir(dir)
}

func (m *mortal) Remove(path string) error {
	if err := m.lives(); err != nil {
		return err
	}
	return m.FS.Remove(path)
}

type mortalFile struct {
	store.File
	m *mortal
}

func (f mortalFile) Write(p []byte) (int, error) {
	if err := f.m.lives(); err != nil {
		n, _ := f.File.Write(p[:len(p)/2])
		return n, err
	}
	return f.File.Write(p)
}

func (f mortalFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.m.lives(); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], at)
		return n, err
	}
	return f.File.WriteAt(p, at)
}

func (f mortalFile) Truncate(size int64) error {
	if err := f.m.lives(); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f mortalFile) Sync() error {
	if err := f.m.lives(); err != nil {
		return err
	}
	return f.File.Sync()
}

// plant is an in-memory federation with a coordinator, a registrar and an enrolled agent. Only the state folders are on
// disk.
type plant struct {
	t      *testing.T
	dir    string
	broker *memory.Broker
	topics mqtt.Topics
	s      coordinatorsettings.ConfigFile
	desk   enrol.Config
	first  tls.Certificate
	boot   wire.Epoch

	agent   *agent.Agent
	members *enrolmentService
	dropped atomic.Int64 // number of messages with an invalid signature
	ends    []func()     // stop functions of the running coordinator and the agent
}

const pressID = "press"

func newPlant(t *testing.T) *plant {
	t.Helper()
	p := &plant{t: t, dir: t.TempDir(), broker: memory.New(memory.Options{}), topics: hosts.TopicsOf(t, "plant"),
		s: coordinatorsettings.Default()}
	p.s.Federation, p.s.StateDir = "plant", filepath.Join(p.dir, "coordinator")
	p.s.Identity.AgentListFile = filepath.Join(p.dir, "agents.keys")
	p.s.Identity.KeyFile, p.s.Enrolment.RootFile = filepath.Join(p.dir, "coordinator.key"), filepath.Join(p.dir, "root")
	must(t, os.MkdirAll(p.s.StateDir, 0o700))
	must(t, os.MkdirAll(p.agentDir(), 0o700))
	must(t, agentlist.EditListFile(store.LocalDisk, p.s.Identity.AgentListFile, nil, pressID, hosts.PublicOf(pressID)))
	authority, err := enrol.NewCertificateAuthority("plant", newTLSKey(t), time.Now())
	must(t, err)
	key := hosts.TestKey(wire.CoordinatorID)
	root := wire.RootDocument{Federation: "plant", Version: wire.FirstRootVersion,
		CoordinatorKey:    wire.SigningPublicKeyOf(key),
		CACertificateHash: authority.CertificateDigest()}
	root.Sign(hosts.TestKey("root"), nil)
	secret, err := keys.EncodePrivate(key)
	must(t, err)
	must(t, os.WriteFile(p.s.Identity.KeyFile, secret, 0o600))
	must(t, os.WriteFile(p.s.Enrolment.RootFile, root.Bytes(), 0o600))
	p.desk = enrol.Config{EncodedRootDocument: root.Bytes(), CoordinatorKey: key, CertificateAuthority: authority,
		DeviceCertificateLifetime: 24 * time.Hour,
		Disk:                      store.LocalDisk,
		MakeBrokerUserName:        func(id wire.AgentID) string { return p.topics.ClientID(id) },
		StateDir:                  p.s.StateDir, Now: time.Now}
	client := newTLSKey(t)
	der, err := authority.IssueClientCertificate(p.topics.ClientID(pressID), &client.PublicKey, time.Now(),
		p.desk.DeviceCertificateLifetime)
	must(t, err)
	p.first = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: client}
	t.Cleanup(p.stop)
	return p
}

func (p *plant) agentDir() string { return filepath.Join(p.dir, "agent") }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newTLSKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

// lead runs a coordinator. after is called before each answer to a key request; if it returns false, the answer is
// lost.
func (p *plant) lead(disk *mortal, after func() bool) (kill func()) {
	p.t.Helper()
	f := &Federation{file: &p.s, stateDir: p.s.StateDir, coordinatorChanged: make(chan struct{}),
		statusTracker: coordinatorstatus.New("", "plant", time.Now, status.NewBoard(time.Now, nil)),
		o:             testOptions(slog.New(slog.DiscardHandler), metrics.NewRegistry("coordinator"))}
	whole := store.LocalDisk
	f.enrolment = &enrolmentService{federation: f}
	p.members = f.enrolment
	if disk != nil {
		f.enrolment.agentListFS, whole = disk, store.Disk{FS: disk}
	}
	log, err := audit.Open(whole, p.s.StateDir, "plant", p.desk.CoordinatorKey, time.Now, func(error) {})
	must(p.t, err)
	f.audit = &auditor{log: log, logger: slog.New(slog.DiscardHandler), dir: p.s.StateDir}
	roots, err := p.s.RootDocuments()
	must(p.t, err)
	desk := p.desk
	desk.EncodedRootDocument = roots[len(roots)-1].Bytes()
	desk.List, desk.Observer = f.enrolment, f.enrolment
	f.enrolment.enroller, err = enrol.Open(desk)
	must(p.t, err)
	cfg := hosts.Coordinator(p.t, "plant", nil)
	cfg.StateDir, cfg.Round = p.s.StateDir, round.DefaultConfig()
	cfg.Round.Gather.MinAgents, cfg.Round.Participants, cfg.Round.Quorum = 2, 2, 2
	cfg.Task = wire.Task{Name: "air", Features: []string{"a"}, TargetColumn: "y", MinSamples: 1,
		Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
		Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1, NormalizesStepSize: true,
			StepTimeBudgetMillis: 1000,
			MinLocalSteps:        1, MaxLocalSteps: 2}}
	cfg.RootDocuments = roots
	if cfg.Agents, err = p.s.OpenAgentList(); err != nil {
		p.t.Fatal(err)
	}
	dead := new(atomic.Bool)
	cfg.RenewCredentials = func(ctx context.Context, id wire.AgentID,
		m *wire.CredentialRenewalRequest) (wire.CredentialRenewalAnswer,
		bool) {
		answer, vouched := f.enrolment.renewCredentials(ctx, id, m)
		return answer, vouched && after() && !dead.Load()
	}
	cfg.Observer = testkit.Observer(func(event observe.Event) {
		if d, is := event.(coordinator.MessageDropped); is && d.Reason == devices.DropSignature {
			p.dropped.Add(1)
		}
	})
	conn := p.broker.Connect(p.topics.ClientID(wire.CoordinatorID), nil)
	c, err := coordinator.New(cfg, conn)
	must(p.t, err)
	f.setRunningCoordinator(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	p.ends = append(p.ends, func() {
		cancel()
		if err := <-done; err != nil { // the coordinator may have been killed
			p.t.Log(err)
		}
		_ = log.Close()
	})
	return func() {
		dead.Store(true)
		cancel()
	}
}

func (p *plant) join(disk *mortal) (kill func()) {
	p.t.Helper()
	p.boot++
	cfg := hosts.Agent(p.t, "plant", pressID, uint64(p.boot))
	root, err := wire.DecodeAndVerifyRootDocument(p.desk.EncodedRootDocument)
	must(p.t, err)
	cfg.Identity.Root, cfg.StateDir, cfg.BootEpoch, cfg.Logger = &root, p.agentDir(), p.boot,
		slog.New(slog.DiscardHandler)
	cfg.TaskData.Source = data.MemorySource(func([]string, string) (*learner.Samples[float32], error) {
		return learner.NewSamples(1, []float32{1, 2, 3}, []float32{2, 4, 6}), nil
	})
	cfg.Identity.ReadConfiguredCertificate = func() (tls.Certificate, error) { return p.first, nil }
	cfg.Observer = testkit.Observer(func(observe.Event) {})
	if disk != nil {
		cfg.Disk = store.Disk{FS: disk}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			a, err := agent.New(cfg, func(will func() mqtt.Message) (mqtt.Conn, error) {
				w := will()
				return p.broker.Connect(p.topics.ClientID(pressID), &w), nil
			})
			if err != nil {
				return // the agent was killed
			}
			p.agent = a
			if err := a.Run(ctx); !errors.As(err, new(*identity.DeviceKeyReplacedError)) {
				return
			}
			p.boot++
			cfg.BootEpoch = p.boot
		}
	}()
	p.ends = append(p.ends, func() {
		cancel()
		<-done
	})
	return cancel
}

func (p *plant) stop() {
	for _, end := range p.ends {
		end()
	}
	p.ends = nil
}

// listed returns the agent's key in the list.
func (p *plant) listed() ed25519.PublicKey {
	p.t.Helper()
	is, err := agentlist.LookupAgentAndKey(p.s.Identity.AgentListFile, pressID, nil)
	must(p.t, err)
	return is.AgentKey
}

// agree checks that the agent's newest presence is signed with the key in the list, and returns that key.
func (p *plant) agree(what string) ed25519.PublicKey {
	p.t.Helper()
	e := p.presence()
	if err := e.Verify(p.listed()); err != nil {
		p.t.Errorf("%s: the list has another key than the agent: %v", what, err)
	}
	return p.listed()
}

// presence returns the newest presence message of the agent.
func (p *plant) presence() wire.Envelope {
	p.t.Helper()
	c := p.broker.Connect("reader", nil)
	defer c.Close()
	c.Subscribe(mqtt.AtMostOnce, p.topics.Presence(pressID))
	for {
		m, is := (<-c.Events()).(mqtt.MessageReceived)
		if !is {
			continue
		}
		e, err := wire.ParseEnvelope(m.Payload)
		must(p.t, err)
		return e
	}
}

// ask makes the agent rotate its key.
func (p *plant) ask() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.agent.RotateKey(ctx)
}

func yes() bool { return true }

func wait(d time.Duration) { <-time.After(d) }

// TestKeyRotates checks that the device gets a new key and a new certificate. Both must be on both disks and in the
// audit log, and the old key must be rejected.
func TestKeyRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		p.lead(nil, yes)
		p.join(nil)
		wait(time.Minute)
		before := p.agree("before")
		must(t, p.ask())
		wait(time.Minute)
		if after := p.agree("after"); after.Equal(before) {
			t.Error("the key is the same")
		}
		is, err := identity.LoadCertificate(store.LocalDisk, p.agentDir(), p.first)
		if err != nil || bytes.Equal(is.Certificate[0], p.first.Certificate[0]) {
			t.Errorf("the certificate is the same: %v", err)
		}
		files, err := filepath.Glob(filepath.Join(p.s.StateDir, audit.Folder, "*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		text, err := os.ReadFile(files[0])
		if err != nil || !bytes.Contains(text, []byte(`"event":"renewed","agent":"press","about":"new key, `+
			`certificate`)) {
			t.Errorf("the audit log: %s", text)
		}
		dropped := p.dropped.Load()
		thief := p.broker.Connect("thief", nil)
		defer thief.Close()
		hello := wire.SignEnvelope(nil, wire.Header{Root: wire.FirstRootVersion, Type: wire.TypeHello,
			Federation: "plant",
			Sender:     pressID, Epoch: 9, Sequence: 1}, (&wire.Hello{Samples: 9}).Body(), hosts.TestKey(pressID))
		must(t, thief.Publish(mqtt.Message{Topic: p.topics.AgentToCoordinator(pressID), Payload: hello}))
		wait(time.Minute)
		if p.dropped.Load() == dropped {
			t.Error("the key before is heard")
		}
		p.stop()
		p.lead(nil, yes)
		p.join(nil)
		wait(time.Minute)
		if p.agree("at the next start").Equal(before) {
			t.Error("the key before is back")
		}
	})
}

// killEach kills a coordinator, and then an agent, before each of their disk operations, until run is no longer
// interrupted. There must be at least `least` operations.
func killEach(t *testing.T, least int, run func(t *testing.T, what, who string, cut int) (killed bool)) {
	t.Helper()
	stride := 1
	if testing.Short() {
		stride = 3
	}
	for _, who := range []string{"coordinator", "agent"} {
		for cut := 0; ; cut += stride {
			killed := false
			what := fmt.Sprintf("%s, cut %d", who, cut)
			synctest.Test(t, func(t *testing.T) { killed = run(t, what, who, cut) })
			if killed {
				continue
			}
			if cut < least {
				t.Errorf("%s is never killed after %d operations: the test cuts none", who, cut)
			}
			break
		}
	}
}

// victim is a coordinator or an agent that is killed after a number of disk operations.
type victim struct {
	disk *mortal
	died chan struct{}
}

// begin starts the coordinator and the agent and waits until they work. The disk of one of them may then be made to
// fail.
func (p *plant) begin(who string, answers func() bool) *victim {
	v := &victim{died: make(chan struct{})}
	var kill func()
	v.disk = newMortal(math.MaxInt, func() {
		kill()
		close(v.died)
	})
	led, joined := v.disk, v.disk
	if who == "agent" {
		led = nil
	} else {
		joined = nil
	}
	lead := p.lead(led, answers)
	if kill = p.join(joined); who != "agent" {
		kill = lead
	}
	wait(time.Minute)
	return v
}

// TestKeyRotatesKilled kills the coordinator or the agent before each disk operation and before the answer is sent.
// Both must end with the same key, which is the new one.
func TestKeyRotatesKilled(t *testing.T) {
	killEach(t, 7, rotateKilled)
}

func rotateKilled(t *testing.T, what, who string, cut int) (killed bool) {
	p := newPlant(t)
	first := true
	v := p.begin(who, func() bool { // the first answer is lost
		was := first
		first = false
		return !was
	})
	before := p.agree("before " + what)
	v.disk.left.Store(int64(cut))
	asked := make(chan error, 1)
	go func() { asked <- p.ask() }()
	select {
	case <-v.died:
	case err := <-asked: // an error here is equivalent to a lost answer
		p.t.Log(err)
	}
	wait(time.Second)
	select { // the agent may have died after the request
	case <-v.died:
		killed = true
		p.stop()
		p.lead(nil, yes)
		p.join(nil)
	default:
		v.disk.left.Store(1 << 40)
	}
	wait(10 * time.Minute)
	after := p.agree(what)
	if after.Equal(before) && !killedBeforeAsking(p, killed, who) {
		t.Errorf("%s: the key is the one before", what)
	}
	p.stop()
	return killed
}

// killedBeforeAsking reports whether the agent died before its next key was on disk. Then no party knows a new key.
func killedBeforeAsking(p *plant, killed bool, who string) bool {
	_, err := os.Stat(filepath.Join(p.agentDir(), "key"))
	return killed && who == "agent" && errors.Is(err, fs.ErrNotExist)
}

// TestRenewRefused checks that a request signed with an unlisted key gets no answer, also after a revocation. Another
// device's key and a certificate without its key are refused. Refused requests must not change the list.
func TestRenewRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		list := p.s.Identity.AgentListFile
		must(t, agentlist.EditListFile(store.LocalDisk, list, nil, "mill", hosts.PublicOf("mill")))
		p.lead(nil, yes)
		key := newTLSKey(t)
		request := func(next, before wire.AgentID) *wire.CredentialRenewalRequest {
			m := &wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKeyOf(hosts.TestKey(next))}
			public, err := key.PublicKey.Bytes()
			must(t, err)
			m.TLSKey = (*wire.TLSPublicKey)(public)
			if before != "" {
				m.SignWithListedKey("plant", pressID, hosts.TestKey(before))
			}
			sum := sha256.Sum256(m.SignedText("plant", pressID))
			m.TLSKeySignature, err = ecdsa.SignASN1(rand.Reader, key, sum[:])
			must(t, err)
			return m
		}
		half := request(pressID, "")
		half.TLSKeySignature[len(half.TLSKeySignature)-1] ^= 1
		before, err := os.ReadFile(list)
		must(t, err)
		for name, tt := range map[string]struct {
			m       *wire.CredentialRenewalRequest
			vouched bool
			want    wire.RenewalRefusalReason
		}{
			"a stranger's certificate":  {request("stranger", ""), false, 0},
			"a stranger's word":         {request("next", "stranger"), false, 0},
			"another device's key":      {request("mill", pressID), true, wire.RenewalKeyOfOtherDevice},
			"no key of the certificate": {half, true, wire.RenewalStorageFailed},
		} {
			a, vouched := p.members.renewCredentials(t.Context(), pressID, tt.m)
			if vouched != tt.vouched || a.RefusalReason != tt.want || len(a.Certificate) > 0 {
				t.Errorf("%s: %+v, %v", name, a, vouched)
			}
		}
		weak := request("next", pressID)
		weak.NewKey = wire.SigningPublicKey{1}
		if a, _ := p.members.renewCredentials(t.Context(), pressID,
			weak); a.RefusalReason != wire.RenewalKeyOfOtherDevice {
			t.Errorf("a key of small order: %+v", a)
		}
		if after, err := os.ReadFile(list); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the list is %s", after)
		}
		must(t, p.members.revokeDevice(t.Context(), pressID))
		if a, vouched := p.members.renewCredentials(t.Context(), pressID, request("next", pressID)); vouched {
			t.Errorf("after it was revoked: %+v", a)
		}
		if is := p.listed(); is != nil {
			t.Error("the revoked device is back in the list")
		}
	})
}

// TestRenewRevoked checks that the root document can revoke a device.
func TestRenewRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlant(t)
		root, err := wire.DecodeAndVerifyRootDocument(p.desk.EncodedRootDocument)
		must(t, err)
		root.RevokedAgents = []wire.AgentID{pressID}
		root.Sign(hosts.TestKey("root"), nil)
		must(t, os.WriteFile(p.s.Enrolment.RootFile, root.Bytes(), 0o600))
		p.lead(nil, yes)
		a, vouched := p.members.renewCredentials(t.Context(), pressID,
			&wire.CredentialRenewalRequest{NewKey: wire.SigningPublicKeyOf(hosts.TestKey(pressID)),
				TLSKey: new(wire.TLSPublicKey)})
		if !vouched || a.RefusalReason != wire.RenewalDeviceRevoked {
			t.Errorf("%+v, %v", a, vouched)
		}
	})
}
