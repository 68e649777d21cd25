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

// SelfTestTimeout is how long a message may take to the broker and back, the wait in the queue included.
func SelfTestTimeout(b *settings.Broker) time.Duration { return 2 * b.KeepAlive }

// UnlockStateFolder unlocks the state folder. The process is ending, so an error is only logged.
func UnlockStateFolder(l *store.StateFolderLock, log *slog.Logger) {
	if err := l.Unlock(); err != nil {
		log.Warn("the state folder could not be unlocked", "err", err)
	}
}

// RandomBytes makes key material.
func RandomBytes(b []byte) { crand.Read(b) } // never fails

// NewRand returns a generator for jitter and nonces, seeded by the system.
func NewRand() *rand.Rand {
	var seed [16]byte
	crand.Read(seed[:]) // never fails
	return rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))
}

// MakeStateFolder makes the state folder.
func MakeStateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state folder: %w", err)
	}
	return nil
}

// CommandTimeout is how long a command may wait for the coordinator, which may be busy with a large model.
const CommandTimeout = 20 * time.Second
