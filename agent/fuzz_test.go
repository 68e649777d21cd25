package agent

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fedmesh/fedmesh/agent/fetch"
	"github.com/fedmesh/fedmesh/agent/identity"
	"github.com/fedmesh/fedmesh/agent/mesh"
	"github.com/fedmesh/fedmesh/agent/part"
	"github.com/fedmesh/fedmesh/agent/state"
	"github.com/fedmesh/fedmesh/agent/taskdata"
	"github.com/fedmesh/fedmesh/agent/training"
	"github.com/fedmesh/fedmesh/agent/upload"
	"github.com/fedmesh/fedmesh/host"
	"github.com/fedmesh/fedmesh/internal/testkit"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// readers contains the functions that read the files of the state folder.
var readers = []struct {
	name string
	read func(c *Config) error
}{
	{state.ObeyedPosition.Name + ".a", func(c *Config) error {
		_, _, err := loadAnnouncementPosition(c.stateFolder().OpenSlots(state.ObeyedPosition))
		return err
	}},
	{state.Update.Name + ".a", loadUpload},
	{state.ErrorFeedback.Name, loadUpload},
	{state.Block.Name, loadTraining},
	{state.PersonalModel.Name + ".a", loadTraining},
	{state.HeldOutSplit.Name, func(c *Config) error {
		_, err := taskdata.New(&part.AgentCore{StateFolder: c.stateFolder()}, taskdata.Config{},
			taskdata.AgentCallbacks{})
		return err
	}},
	{state.GroupKeys.Name, func(c *Config) error {
		_, err := fetch.New(&part.AgentCore{StateFolder: c.stateFolder()}, fetch.Config{}, nil)
		return err
	}},
	{state.Clock.Name, loadIdentity},
	{state.Attestation.Name, func(c *Config) error {
		core := &part.AgentCore{StateFolder: c.stateFolder(), Signer: &host.Signer{}, Loop: host.NewEventLoop(nil)}
		_, err := mesh.New(core, nil, noTrust{}, mesh.EventCallbacks{})
		return err
	}},
	{state.RootDocument.Name, loadIdentity},
	{state.DeviceKeys.Name, loadIdentity},
	{state.Certificate.Name, loadIdentity},
}

func loadUpload(c *Config) error {
	_, err := upload.New(&part.AgentCore{StateFolder: c.stateFolder(), Logger: slog.New(slog.DiscardHandler)}, 0, nil)
	return err
}

func loadTraining(c *Config) error {
	core := &part.AgentCore{StateFolder: c.stateFolder(), Loop: host.NewEventLoop(nil),
		Logger: slog.New(slog.DiscardHandler)}
	_, err := training.New(core, training.Config{}, training.TrainingDependencies{})
	return err
}

func loadIdentity(c *Config) error {
	_, err := identity.New(&part.AgentCore{ID: "press", StateFolder: c.stateFolder(), Signer: new(host.Signer)},
		&c.Identity,
		nil)
	return err
}

// unsynced is a file system whose files ignore Sync, which makes tests faster.
type unsynced struct{ store.FS }

func (u unsynced) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	f, err := u.FS.OpenFile(path, flag, perm)
	return unsyncedFile{f}, err
}

func (unsynced) SyncDir(string) error { return nil }

type unsyncedFile struct{ store.File }

func (unsyncedFile) Sync() error { return nil }

// FuzzFolder reads a state folder that contains one file of arbitrary content, both as a raw file and as a record with
// a valid checksum. No content may crash the agent. Only a record of another format version may stop the agent. The
// agent must report unusable content.
func FuzzFolder(f *testing.F) {
	for k := range readers {
		f.Add(uint8(k), uint16(1), []byte{})
		f.Add(uint8(k), uint16(1), make([]byte, 70))
	}
	dir := f.TempDir()
	c := &Config{StateDir: dir, Disk: store.Disk{FS: unsynced{store.LocalDisk.FS}},
		Observer: testkit.Observer(ignoreEvent),
		Identity: identity.Config{Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), Root: rootNumbered(1),
			Clock: identity.NewCertificateClock(time.Time{}, time.Now)}}
	f.Fuzz(func(t *testing.T, which uint8, version uint16, content []byte) {
		r := readers[int(which)%len(readers)]
		path := filepath.Join(dir, r.name)
		defer os.Remove(path)
		slot := strings.HasSuffix(r.name, ".a")
		for _, write := range []func() error{
			func() error { return os.WriteFile(path, content, 0o600) },
			func() error {
				file := store.StateFile{Name: strings.TrimSuffix(r.name, ".a"), Version: version, Slots: 1}
				if slot {
					return c.Disk.NewRecordSlots(dir, &file).WriteAndProtect(content)
				}
				return c.Disk.SaveStateFile(dir, &file, content)
			},
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			newer := (*store.FormatVersionError)(nil)
			if err := r.read(c); err != nil && !errors.As(err, &newer) {
				t.Errorf("%s %x: %v", r.name, content, err)
			}
		}
	})
}

// noTrust provides no coordinator keys.
type noTrust struct{}

func (noTrust) CoordinatorKeys() []ed25519.PublicKey { return nil }
func (noTrust) RevokedAgents() []wire.AgentID        { return nil }
