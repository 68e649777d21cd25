package daemon

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"github.com/fedmesh/fedmesh/internal/settings"
	"github.com/fedmesh/fedmesh/store"
)

// SelfTestTimeout returns the time limit of the self-test: a message travels to the broker and back, and may have to
// wait in the queue.
func SelfTestTimeout(b *settings.Broker) time.Duration { return 2 * b.KeepAlive }

// UnlockStateFolder unlocks the state folder. It only logs an error, because the process is about to exit.
func UnlockStateFolder(l *store.StateFolderLock, log *slog.Logger) {
	if err := l.Unlock(); err != nil {
		log.Warn("cannot unlock the state folder", "err", err)
	}
}

// RandomBytes fills b with cryptographically secure random bytes.
func RandomBytes(b []byte) { crand.Read(b) } // never fails

// NewRand returns a random generator for jitter and nonces, seeded by the system.
func NewRand() *rand.Rand {
	var seed [16]byte
	crand.Read(seed[:]) // never fails
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))
}

// MakeStateFolder creates the state folder, accessible only to its owner, if it does not exist.
func MakeStateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}

// CommandTimeout is the time limit for a command that is sent to the coordinator. The coordinator may be busy with a
// large model.
const CommandTimeout = 20 * time.Second
