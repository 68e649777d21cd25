package sealing

import (
	"crypto/ed25519"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"testing"

	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// listOf returns a list of agents with keys derived from their names.
func listOf(ids ...wire.AgentID) *enrolled.List {
	keys := map[wire.AgentID]ed25519.PublicKey{}
	for _, id := range ids {
		seed := make([]byte, ed25519.SeedSize)
		copy(seed, id)
		keys[id] = ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	}
	return enrolled.NewListFromKeys(keys)
}

// ring loads a keyring from the files in dir. The first byte of each new secret is the next of the numbers 1, 2, 3, ….
func ring(t *testing.T, files store.Disk, dir string, drawn *byte, list *enrolled.List) *Keyring {
	t.Helper()
	k, err := LoadKeyring(Config{Logger: slog.New(slog.DiscardHandler), Folder: runs.NewStateFolder(files, dir),
		FillRandom:         func(b []byte) { *drawn++; b[0] = *drawn },
		FindAgentPublicKey: func(wire.AgentID) ed25519.PublicKey { return nil }}, list)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// once calls write once.
func once(write func() error) error { return write() }

// present returns the first byte of each secret, newest first.
func (k *Keyring) present() (all []byte) {
	for _, x := range k.secrets {
		all = append(all, x.SealSecret[0])
	}
	return all
}

// TestKeyChanges checks that the secret is replaced after 1,000 rounds, after an agent was removed or its key changed,
// and after a new root document. It is kept when an agent is added, in a new run and after a restart. A new secret is
// on disk before it is used.
func TestKeyChanges(t *testing.T) {
	dir, drawn, list := t.TempDir(), byte(0), listOf("a", "b")
	k, run, root := ring(t, store.LocalDisk, dir, &drawn, list), wire.RunID(7), wire.FirstRootVersion
	renew := func(what string, r wire.RoundID, want ...byte) {
		t.Helper()
		if err := k.RenewSecretIfDue(run, r, root, once); err != nil || !slices.Equal(k.present(), want) {
			t.Fatalf("%s: secrets %v, want %v: %v", what, k.present(), want, err)
		}
		saved, err := loadSecretsFile(k.cfg.Folder)
		if err != nil || len(saved.Secrets) != len(want) || saved.Secrets[0][0] != want[0] {
			t.Fatalf("%s: on the disk is %v: %v", what, saved, err)
		}
	}
	change := func(to *enrolled.List) {
		k.HandleAgentListChange(to, list)
		list = to
	}
	restart := func(with *enrolled.List) { k, list = ring(t, store.LocalDisk, dir, &drawn, with), with }
	renew("at the first round", 1, 1)
	renew("in its last round", 1000, 1)
	renew("after 1,000 rounds", 1001, 2, 1)
	renew("in the next", 1002, 2, 1)
	change(listOf("a", "b", "c"))
	renew("an agent more", 1003, 2, 1)
	restart(listOf("a", "b", "c"))
	renew("a restart", 1004, 2, 1)
	change(listOf("a", "b"))
	renew("an agent less", 1005, 3, 2)
	change(listOf("a", "c")) // the change replaces agent b with agent c
	renew("another agent", 1006, 4, 3)
	restart(listOf("a"))
	renew("an agent less at a restart", 1007, 5, 4)
	run = 8
	renew("another run", 1, 5, 4)
	renew("its last round", 1000, 5, 4)
	renew("after 1,000 rounds of the run", 1001, 6, 5)
	root = 2
	renew("another root document", 1002, 7, 6)
	renew("by the same", 1003, 7, 6)
}

// cuts is a file system whose operations fail after the first *left operations.
type cuts struct {
	store.FS
	left *int
}

type cutFile struct {
	store.File
	fs cuts
}

var errCut = errors.New("the disk is gone")

func (f cuts) goes() error {
	if *f.left--; *f.left < 0 {
		return errCut
	}
	return nil
}

func (f cuts) OpenFile(path string, flag int, perm fs.FileMode) (store.File, error) {
	if err := f.goes(); err != nil {
		return nil, err
	}
	file, err := f.FS.OpenFile(path, flag, perm)
	return cutFile{file, f}, err
}

func (f cutFile) Write(p []byte) (int, error) {
	if err := f.fs.goes(); err != nil {
		_, _ = f.File.Write(p[:len(p)/2])
		return 0, err
	}
	return f.File.Write(p)
}

func (f cutFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.fs.goes(); err != nil {
		_, _ = f.File.WriteAt(p[:len(p)/2], at)
		return 0, err
	}
	return f.File.WriteAt(p, at)
}

func (f cutFile) Sync() error {
	if err := f.fs.goes(); err != nil {
		return err
	}
	return f.File.Sync()
}

// TestKeyChangeCut checks that a new secret after a revocation is safe if the disk fails at any operation. The secret
// must not be used until it is on disk, and the next process must have a secret that the revoked device does not know.
func TestKeyChangeCut(t *testing.T) {
	for cut := 0; ; cut++ {
		dir, drawn := t.TempDir(), byte(0)
		k := ring(t, store.LocalDisk, dir, &drawn, listOf("a", "b"))
		if err := k.RenewSecretIfDue(7, 1, wire.FirstRootVersion, once); err != nil {
			t.Fatal(err)
		}
		left := 1 << 20
		k = ring(t, store.Disk{FS: cuts{store.LocalDisk.FS, &left}}, dir, &drawn, listOf("a"))
		left = cut
		err := k.RenewSecretIfDue(7, 2, wire.FirstRootVersion, once)
		if used := k.present()[0]; (used == 1) != (err != nil) {
			t.Errorf("cut %d: secret %d is used: %v", cut, used, err)
		}
		k = ring(t, store.LocalDisk, dir, &drawn, listOf("a"))
		if err := k.RenewSecretIfDue(7, 2, wire.FirstRootVersion, once); err != nil || k.present()[0] == 1 {
			t.Errorf("cut %d: the next process has secrets %v: %v", cut, k.present(), err)
		}
		if left >= 0 {
			if cut < 3 {
				t.Fatalf("a change takes %d operations of the disk: the test cuts none", cut)
			}
			return
		}
	}
}

// TestHelloAfterTheKey checks that the first hello after an agent received the group key is ignored, because the agent
// has not decrypted the task yet. The next hello is handled.
func TestHelloAfterTheKey(t *testing.T) {
	drawn := byte(0)
	k := ring(t, store.LocalDisk, t.TempDir(), &drawn, listOf())
	if err := k.RenewSecretIfDue(7, 1, wire.FirstRootVersion, once); err != nil {
		t.Fatal(err)
	}
	k.announcedGroupKeyID = 7
	for i, h := range []struct {
		wants uint64
		unfit wire.DeclineReason
		says  bool // true if the hello contains more than a request for the key
	}{
		{0, wire.DeclineFetchFailed, true},
		{7, wire.DeclineFetchFailed, false}, {0, wire.DeclineFetchFailed, false}, {0, wire.DeclineFetchFailed, true},
		{7, wire.DeclineFetchFailed, false}, {0, wire.DeclineBadData, true}, {0, wire.DeclineFetchFailed, true},
		{7, 0, true}, {0, 0, true}, {0, wire.DeclineFetchFailed, true},
	} {
		m := wire.Hello{MissingGroupKeyID: h.wants, UnfitReason: h.unfit}
		asks, says := k.HandleHello("a", &m, true)
		if asks {
			k.GroupKeyFor("a")
		}
		if asks != (h.wants == 7) || says != h.says {
			t.Errorf("hello %d (%+v) says more: %t", i, h, says)
		}
	}
}
