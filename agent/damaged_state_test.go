package agent

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"errors"
	"io/fs"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/data"
	"github.com/fedmesh/fedmesh/internal/testkit/memory"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt"
	"github.com/fedmesh/fedmesh/observe"
	"github.com/fedmesh/fedmesh/spec"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/task"
	"github.com/fedmesh/fedmesh/wire"
)

// recorded keeps what was lost.
type recorded struct{ lost []StateLost }

func (r *recorded) Observe(event observe.Event) {
	if f, ok := event.(StateLost); ok {
		r.lost = append(r.lost, f)
	}
}

func (r *recorded) ObserveRound(observe.Event) {}

func noData([]string, string) (*learner.Samples[float32], error) { return nil, errors.New("none") }

// stateFile is a file of an agent's state folder and what is promised of it.
type stateFile struct {
	write func(t *testing.T, dir string) // a sound one
	// silent files are held against hashes that come from elsewhere: what is wrong in them comes again.
	silent bool
	slots  bool // it is kept in slots, in one copy so far
	// kept files are set aside when they are damaged, the others removed.
	kept bool
}

func stateFiles(t *testing.T) map[string]stateFile {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	part := func(p blobPurpose) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			must(t, os.WriteFile(p.path(dir), bytes.Repeat([]byte{1}, 3000), 0o600))
		}
	}
	return map[string]stateFile{
		store.BootFile: {kept: true, write: func(t *testing.T, dir string) {
			_, err := store.Machine.SaveBootEpochAfter(dir, 6)
			must(t, err)
		}},
		obeyedPositionFile: {kept: true, slots: true, write: func(t *testing.T, dir string) {
			must(t, saveObeyed((&Config{Dir: dir, Disk: store.Machine}).positionSlots(),
				wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: 2, Round: 3,
					Attempt: 4, Phase: wire.PhaseOpen}, wire.Digest{5}))
		}},
		updateFile: {slots: true, write: func(t *testing.T, dir string) {
			u := &trainedUpdate{Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 7}, run: 8, round: 9}
			must(t, u.setPayload(bytes.Repeat([]byte{1, 2, 3, 4}, 1000), wire.Digest{6}))
			must(t, saveUpdate((&Config{Dir: dir, Disk: store.Machine}).updateSlots(), u))
		}},
		personalFile: {slots: true, write: func(t *testing.T, dir string) {
			k := &personalModelStore{slots: (&Config{Dir: dir, Disk: store.Machine}).personalSlots()}
			must(t, k.saveTrained(personalState{personalKey{run: 8}, 9, []float32{1, 2}, []float32{3, 4}}))
		}},
		feedbackFile: {write: func(t *testing.T, dir string) {
			r := &feedbackResidual{run: 8, round: 8, residual: []float32{1, 2}}
			must(t, saveFeedback(&Config{Dir: dir, Disk: store.Machine}, r))
		}},
		blockFile: {write: func(t *testing.T, dir string) {
			p, err := task.Compile[float32](wire.Task{
				Name: "power", Features: []string{"a"}, Target: "y",
				Model: wire.ModelShape{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.RiskSquared},
				Training: wire.Training{Exchange: spec.ExchangeParameters, StepSize: 0.1, BudgetMillis: 1000,
					MinSteps: 1,
					MaxSteps: 4},
			})
			must(t, err)
			b := &endlessBlock{p: &preparedTask{localTask: &localTask{compiledTask: p}}, steps: 4}
			b.trainEffect.StepWeight, b.trainEffect.EdgeBlockRound = 1, 1
			must(t, saveBlock(&Config{Dir: dir, Disk: store.Machine}, b, 1, []float32{0.5}))
		}},
		budgetFile: {kept: true, write: func(t *testing.T, dir string) {
			l := &trafficLedger{disk: store.Machine, path: filepath.Join(dir, budgetFile), month: monthOf(time.Now()),
				used: 5}
			must(t, l.save(0))
		}},
		rootFile: {kept: true, write: func(t *testing.T, dir string) {
			next := rootNumbered(2)
			must(t, saveRoot(&Config{Dir: dir, Disk: store.Machine, Root: rootNumbered(1)}, next))
		}},
		clockFile: {kept: true, write: func(t *testing.T, dir string) {
			must(t, saveClock(&Config{Dir: dir, Disk: store.Machine}, savedClock{1, 1}))
		}},
		attestationFile: {kept: true, write: func(t *testing.T, dir string) {
			word := &wire.Attestation{AgentKey: wire.SigningPublicKey{1}, CoordinatorSignature: wire.Signature{2}}
			must(t, saveAttestation(&Config{Dir: dir, Disk: store.Machine}, word))
		}},
		groupsFile: {kept: true, write: func(t *testing.T, dir string) {
			must(t, saveGroupKeys(&Config{Dir: dir, Disk: store.Machine}, []wire.SealKey{{1}, {2}}))
		}},
		keyFile: {kept: true, write: func(t *testing.T, dir string) {
			_, key, _ := ed25519.GenerateKey(nil)
			must(t, (&deviceKeyState{next: key}).save(&Config{Dir: dir, Disk: store.Machine}, key))
		}},
		certificateFile: {kept: true, write: func(t *testing.T, dir string) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
			must(t, err)
			c := &x509.Certificate{SerialNumber: big.NewInt(1)}
			der, err := x509.CreateCertificate(crand.Reader, c, c, key.Public(), key)
			must(t, err)
			must(t, saveCertificate(&Config{Dir: dir, Disk: store.Machine}, der, key, der))
		}},
		heldOutFile: {kept: true, write: func(t *testing.T, dir string) {
			must(t, saveHeld(&Config{Dir: dir, Disk: store.Machine}, heldOutSplit{2, data.HeldOutBoundary{Rows: 5},
				true}))
		}},
		purposeTask.partialFileName():      {silent: true, write: part(purposeTask)},
		purposeModel.partialFileName():     {silent: true, write: part(purposeModel)},
		purposeModelFile.partialFileName(): {silent: true, write: part(purposeModelFile)},
	}
}

// rootNumbered is a version of a root document.
func rootNumbered(v wire.RootVersion) *wire.RootDocument {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	d := &wire.RootDocument{Federation: "plant", Version: v, CoordinatorKey: wire.SigningPublicKeyOf(key)}
	d.Sign(key, key)
	return d
}

// damages are what becomes of a file.
var damages = map[string]func(t *testing.T, path string){
	"sound": func(*testing.T, string) {},
	"deleted": func(t *testing.T, path string) {
		rewrite(t, path, func([]byte) []byte { return nil })
		_ = os.Remove(path)
	},
	"empty": func(t *testing.T, path string) { rewrite(t, path, func([]byte) []byte { return nil }) },
	"torn": func(t *testing.T, path string) {
		rewrite(t, path, func(p []byte) []byte { return p[:min(len(p)/2, 40)] })
	},
	"flipped": func(t *testing.T, path string) {
		rewrite(t, path, func(p []byte) []byte { p[min(len(p)/2, 40)] ^= 1; return p })
	},
	"rubbish": func(t *testing.T, path string) { // a sound record that makes no sense
		version := uint16(fileVersion)
		if strings.HasSuffix(path, ".a") {
			version = slotVersion
		}
		saveBody(t, path, version, bytes.Repeat([]byte{0xff}, 40))
	},
	"another version": func(t *testing.T, path string) {
		saveBody(t, path, slotVersion+1, nil)
	},
}

// saveBody writes a record, to slots where the file is a copy of these.
func saveBody(t *testing.T, path string, version uint16, body []byte) {
	t.Helper()
	var err error
	if name, is := strings.CutSuffix(path, ".a"); is {
		err = store.Machine.NewRecordSlots(name, 1).WriteAndProtect(version, body)
	} else {
		err = store.Machine.SaveRecord(path, version, body)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	p, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(p), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// begin starts an agent as the daemon does, as far as its state folder goes.
func begin(t *testing.T, dir string) (seen recorded, boot uint64, obeyed wire.AnnouncementPosition) {
	t.Helper()
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	boot, lost, err := store.Machine.NextBootEpoch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if lost != nil && !errors.Is(lost, store.ErrNoRecord) {
		seen.Observe(BootCounterLost(lost))
	}
	_, key, _ := ed25519.GenerateKey(nil)
	cfg := Config{
		Federation: "plant", ID: "press", Key: key, Root: rootNumbered(1), Topics: topics,
		Clock: NewCertificateClock(time.Time{}, nil),
		Data:  data.MemorySource(noData), Dir: dir, Boot: wire.Epoch(boot),
		MaxBlobBytes: 1 << 20, Budget: &UplinkBudget{MonthlyBytes: 1 << 30, Meter: new(mqtt.TrafficMeter)},
		Observer: &seen,
		Logger:   slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(1, 2)),
	}
	conn := memory.New(memory.Options{}).Connect("press", nil)
	defer conn.Close()
	a, err := New(cfg, func(func() mqtt.Message) (mqtt.Conn, error) { return conn, nil })
	if err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	if _, _, _, err := loadBlock(&a.cfg); err != nil {
		t.Error(err)
	}
	for _, p := range []blobPurpose{purposeTask, purposeModel, purposeModelFile} {
		f, err := store.Machine.OpenPartial(p.path(dir), 3000, 1000, func(int) [32]byte { return [32]byte{} })
		if err != nil || f.Has(0) || f.Close() != nil {
			t.Errorf("%s: %v", p.partialFileName(), err)
		}
	}
	return seen, boot, a.lastObeyedPosition
}

// TestStateFiles: an agent starts whatever became of a file of its state folder,
// says once what it has lost, and not again at the next start.
func TestStateFiles(t *testing.T) {
	files := stateFiles(t)
	for _, name := range StateFiles() {
		if _, ok := files[name]; !ok {
			t.Errorf("%s has no entry here", name)
		}
	}
	for name, f := range files {
		if _, told := consequenceByFile[name]; told == f.silent {
			t.Errorf("%s: silent %v, but what the agent does without it: %q", name, f.silent, consequenceByFile[name])
		}
		for what, damage := range damages {
			t.Run(name+" "+what, func(t *testing.T) {
				dir := t.TempDir()
				for _, f := range files {
					f.write(t, dir)
				}
				path, aside := filepath.Join(dir, name), filepath.Join(dir, name+".aside-1")
				if f.slots {
					path, aside = path+".a", aside+".a"
				}
				damage(t, path)
				seen, boot, obeyed := begin(t, dir)
				lost := what != "sound" && what != "deleted" && !f.silent
				if told := len(seen.lost) == 1 && seen.lost[0].File == name && seen.lost[0].Err != nil; told != lost ||
					!told && len(seen.lost) > 0 {
					t.Errorf("told %+v", seen.lost)
				}
				if _, err := os.Stat(aside); (err == nil) != (lost && f.kept) {
					t.Errorf("set aside: %v", err)
				}
				if gone := what != "sound" && name == store.BootFile; gone != (boot == 1) || !gone && boot != 8 {
					t.Errorf("start %d", boot)
				}
				if gone := what != "sound" &&
					name == obeyedPositionFile; gone != (obeyed == wire.AnnouncementPosition{}) {
					t.Errorf("obeys %v", obeyed)
				}
				if again, next, _ := begin(t, dir); len(again.lost) > 0 || next != boot+1 {
					t.Errorf("at the next start, %d after %d: %+v", next, boot, again.lost)
				}
			})
		}
	}
}

// TestStateFilesAreListed reads the names of files from the sources.
func TestStateFilesAreListed(t *testing.T) {
	constant := regexp.MustCompile(`(?m)^\s*(?:const )?\w+File\s*=\s*"([^"]+)"`)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range sources {
		p, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for _, m := range constant.FindAllSubmatch(p, -1) {
			if found++; !slices.Contains(StateFiles(), string(m[1])) {
				t.Errorf("%s names the file %s, which StateFiles lacks: say what an agent does without it", path, m[1])
			}
		}
	}
	if found != 13 {
		t.Errorf("found %d names of files, want 13", found)
	}
}
