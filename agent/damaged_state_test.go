package agent

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/budget"
	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
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

// recorded collects the FileLost events.
type recorded struct{ lost []state.FileLost }

func (r *recorded) Observe(event observe.Event) {
	if f, ok := event.(state.FileLost); ok {
		r.lost = append(r.lost, f)
	}
}

func (r *recorded) ObserveRound(observe.Event) {}

func noData([]string, string) (*learner.Samples[float32], error) { return nil, errors.New("none") }

// stateFile describes how to write a file of the state folder, and how the agent must handle the file if it is damaged.
type stateFile struct {
	write func(t *testing.T, dir string) // writes a valid version of the file
	// silent is true if the agent does not report damage, since it checks the content against hashes from another
	// source.
	silent bool
	slots  bool // whether the file stores its content in several slots, one of which is written
	// kept is true if the agent renames the damaged file. It removes other damaged files.
	kept bool
}

func stateFiles(t *testing.T) map[string]stateFile {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	folder := func(dir string) state.Folder { return state.Folder{Disk: store.LocalDisk, Dir: dir} }
	partial := func(p fetch.BlobPurpose) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, p.FileName()), bytes.Repeat([]byte{1}, 3000), 0o600))
		}
	}
	return map[string]stateFile{
		store.BootEpochFile: {kept: true, write: func(t *testing.T, dir string) {
			_, err := store.LocalDisk.SaveBootEpochAfter(dir, 6)
			must(t, err)
		}},
		state.ObeyedPosition.Name: {kept: true, slots: true, write: func(t *testing.T, dir string) {
			must(t, saveAnnouncementPosition((&Config{StateDir: dir,
				Disk: store.LocalDisk}).stateFolder().OpenSlots(state.ObeyedPosition),
				wire.AnnouncementPosition{Root: 1, Epoch: 1, Run: 2, Round: 3,
					Attempt: 4, Phase: wire.PhaseOpen}, wire.Digest{5}))
		}},
		state.Update.Name: {slots: true, write: func(t *testing.T, dir string) {
			u := part.LocalUpdate{Update: wire.Update{Kind: wire.KindTraining, LocalSteps: 7}}
			must(t, u.SetPayload(bytes.Repeat([]byte{1, 2, 3, 4}, 1000), wire.Digest{6}))
			epochRunRound := make([]byte, 24)
			length := binary.LittleEndian.AppendUint32(nil, uint32(len(u.Body())))
			must(t, folder(dir).OpenSlots(state.Update).Save(epochRunRound, length, u.Body(), u.PayloadBytes))
		}},
		state.PersonalModel.Name: {slots: true, write: func(t *testing.T, dir string) {
			runRoundSchemas := make([]byte, 16+2*len(wire.Digest{}))
			must(t, folder(dir).OpenSlots(state.PersonalModel).Save(runRoundSchemas,
				wire.AppendVector(nil, []float32{1, 2, 3, 4}))) // model parameters before and after the round
		}},
		state.ErrorFeedback.Name: {write: func(t *testing.T, dir string) {
			nothingPending := make([]byte, 84) // header of a residual of run 0, with all fields zero
			must(t, folder(dir).SaveFile(state.ErrorFeedback, wire.AppendVector(nothingPending, []float32{1, 2})))
		}},
		state.Block.Name: {write: func(t *testing.T, dir string) {
			p, err := task.Compile[float32](wire.Task{
				Name: "power", Features: []string{"a"}, TargetColumn: "y",
				Model: wire.ModelSpec{Outputs: 1, Activation: spec.ActivationTanh, Risk: spec.LossSquared},
				Training: wire.TrainingSettings{ExchangeKind: spec.ExchangeParameters, StepSize: 0.1,
					StepTimeBudgetMillis: 1000,
					MinLocalSteps:        1,
					MaxLocalSteps:        4},
			})
			must(t, err)
			runSeedOffsetSteps := make([]byte, 28)
			block := runSeedOffsetSteps
			edges := wire.Invitation{Agent: "me", StepSizeWeight: 1, MixingBlockRound: 1}
			for _, b := range [][]byte{edges.Body(), p.Task.AppendEncoding(nil)} {
				block = append(binary.LittleEndian.AppendUint32(block, uint32(len(b))), b...)
			}
			must(t, folder(dir).SaveFile(state.Block, wire.AppendVector(block, []float32{0.5})))
		}},
		state.UplinkBudget.Name: {kept: true, write: func(t *testing.T, dir string) {
			month := time.Now().Year()*12 + int(time.Now().Month()) - 1
			must(t, folder(dir).SaveFile(state.UplinkBudget,
				binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, uint32(month)), 5)))
		}},
		state.RootDocument.Name: {kept: true, write: func(t *testing.T, dir string) {
			configured := sha256.Sum256(rootNumbered(1).Bytes())
			must(t, folder(dir).SaveFile(state.RootDocument, append(configured[:], rootNumbered(2).Bytes()...)))
		}},
		state.Clock.Name: {kept: true, write: func(t *testing.T, dir string) {
			must(t, folder(dir).SaveFile(state.Clock,
				binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, uint32(wire.FirstRootVersion)),
					1)))
		}},
		state.Attestation.Name: {kept: true, write: func(t *testing.T, dir string) {
			attestation := make([]byte, state.Attestation.MaxBytes)
			must(t, state.Folder{Disk: store.LocalDisk, Dir: dir}.SaveFile(state.Attestation, attestation))
		}},
		state.GroupKeys.Name: {kept: true, write: func(t *testing.T, dir string) {
			keys := make([]byte, 2*len(wire.SealKey{}))
			must(t, state.Folder{Disk: store.LocalDisk, Dir: dir}.SaveFile(state.GroupKeys, keys))
		}},
		state.DeviceKeys.Name: {kept: true, write: func(t *testing.T, dir string) {
			// Save a key that replaces a different configured key.
			must(t, folder(dir).SaveFile(state.DeviceKeys, make([]byte, 3*32)))
		}},
		state.Certificate.Name: {kept: true, write: func(t *testing.T, dir string) {
			key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
			must(t, err)
			c := &x509.Certificate{SerialNumber: big.NewInt(1)}
			der, err := x509.CreateCertificate(crand.Reader, c, c, key.Public(), key)
			must(t, err)
			secret, err := key.Bytes()
			must(t, err)
			configured := sha256.Sum256(der)
			must(t, folder(dir).SaveFile(state.Certificate, append(append(configured[:], secret...), der...)))
		}},
		state.HeldOutSplit.Name: {kept: true, write: func(t *testing.T, dir string) {
			run2rows5 := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 2), 5)
			must(t, state.Folder{Disk: store.LocalDisk, Dir: dir}.SaveFile(state.HeldOutSplit, run2rows5))
		}},
		fetch.Task.FileName():      {silent: true, write: partial(fetch.Task)},
		fetch.Model.FileName():     {silent: true, write: partial(fetch.Model)},
		fetch.ModelFile.FileName(): {silent: true, write: partial(fetch.ModelFile)},
	}
}

// rootNumbered returns a root document with the given version.
func rootNumbered(v wire.RootVersion) *wire.RootDocument {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	d := &wire.RootDocument{Federation: "plant", Version: v, CoordinatorKey: wire.SigningPublicKeyOf(key)}
	d.Sign(key, key)
	return d
}

// damages contains functions that damage a file, by the kind of damage.
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
	"rubbish": func(t *testing.T, path string) { // Write a valid record with invalid content.
		saveBody(t, path, 0, bytes.Repeat([]byte{0xff}, 40))
	},
	"another version": func(t *testing.T, path string) { saveBody(t, path, 1, nil) },
}

// saveBody writes a record of a file. The record's version is higher than the current version of the file by the number
// later. If path is the copy of a file with slots, saveBody writes to a slot.
func saveBody(t *testing.T, path string, later uint16, body []byte) {
	t.Helper()
	name, slotted := strings.CutSuffix(path, ".a")
	file := store.StateFile{Name: filepath.Base(name), Slots: 1, Version: later}
	if i := slices.Index(state.FileNames(), file.Name); i >= 0 {
		file.Version += state.Files[i].Version
	}
	var err error
	if slotted {
		err = store.LocalDisk.NewRecordSlots(filepath.Dir(path), &file).WriteAndProtect(body)
	} else {
		err = store.LocalDisk.SaveStateFile(filepath.Dir(path), &file, body)
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

// begin starts an agent on the state folder dir, as the daemon does.
func begin(t *testing.T, dir string) (seen recorded, boot uint64, obeyed wire.AnnouncementPosition) {
	t.Helper()
	topics, err := mqtt.NewTopics("", "plant")
	if err != nil {
		t.Fatal(err)
	}
	boot, lost, err := store.LocalDisk.NextBootEpoch(dir)
	if err != nil {
		t.Fatal(err)
	}
	if lost != nil && !errors.Is(lost, store.ErrNoRecord) {
		seen.Observe(state.NewStartCounterLost(lost))
	}
	_, key, _ := ed25519.GenerateKey(nil)
	cfg := Config{
		Federation: "plant", ID: "press", Topics: topics,
		Identity: identity.Config{Key: key, Root: rootNumbered(1),
			Clock: identity.NewCertificateClock(time.Time{}, nil)},
		TaskData: taskdata.Config{Source: data.MemorySource(noData)}, StateDir: dir, BootEpoch: wire.Epoch(boot),
		MaxBlobBytes: 1 << 20, Budget: &budget.UplinkBudget{MonthlyBytes: 1 << 30, Meter: new(mqtt.TrafficMeter)},
		Observer: &seen,
		Logger:   slog.New(slog.DiscardHandler), Rand: rand.New(rand.NewPCG(1, 2)),
	}
	conn := memory.New(memory.Options{}).Connect("press", nil)
	defer conn.Close()
	a, err := New(cfg, func(func() mqtt.Message) (mqtt.Conn, error) { return conn, nil })
	if err != nil {
		t.Fatalf("the agent does not start: %v", err)
	}
	for _, p := range []fetch.BlobPurpose{fetch.Task, fetch.Model, fetch.ModelFile} {
		f, err := store.LocalDisk.OpenPartialFile(filepath.Join(dir, p.FileName()), 3000, 1000,
			func(int) [32]byte { return [32]byte{} })
		if err != nil || f.HasChunk(0) || f.Close() != nil {
			t.Errorf("%s: %v", p.FileName(), err)
		}
	}
	return seen, boot, a.core.ObeyedPosition
}

// TestStateFiles checks that an agent starts whatever the damage to one of its state files. The agent must report the
// loss of the file once, and must not report it again at the next start.
func TestStateFiles(t *testing.T) {
	files := stateFiles(t)
	for _, name := range state.FileNames() {
		if _, ok := files[name]; !ok {
			t.Errorf("%s has no entry here", name)
		}
	}
	for name, f := range files {
		if listed := slices.Contains(state.FileNames(), name); listed == f.silent {
			t.Errorf("%s: silent %v, and listed %v", name, f.silent, listed)
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
				if gone := what != "sound" && name == store.BootEpochFile; gone != (boot == 1) || !gone && boot != 8 {
					t.Errorf("start %d", boot)
				}
				if gone := what != "sound" &&
					name == state.ObeyedPosition.Name; gone != (obeyed == wire.AnnouncementPosition{}) {
					t.Errorf("obeys %v", obeyed)
				}
				if again, next, _ := begin(t, dir); len(again.lost) > 0 || next != boot+1 {
					t.Errorf("at the next start, %d after %d: %+v", next, boot, again.lost)
				}
			})
		}
	}
}
