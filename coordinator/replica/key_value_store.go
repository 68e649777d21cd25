package replica

import (
	"context"
	"errors"
)

// ErrNone means that a key has no value.
var ErrNone = errors.New("the state store has no value for this key")

// ErrConflict means that the current revision of a value differs from the expected one.
var ErrConflict = errors.New("the value was changed by another replica: its revision differs from the expected one")

// KeyValueStore is a replicated store with compare-and-set. Its methods must be safe for concurrent use and return soon
// after ctx ends.
type KeyValueStore interface {
	// Get returns the value of a key and its revision. The error wraps ErrNone if the key has no value. Get may return
	// an outdated value shortly after a change.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Put replaces the value with the given revision; revision 0 means that the key must have no value. value has at
	// most MaxValue bytes. Put returns the new revision, which is higher. The error wraps ErrConflict if the revision
	// does not match. After any other error the value may be stored, now or later.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Remove removes the value of a key. It does nothing if the key has no value.
	Remove(ctx context.Context, key string) error
	// Keys returns all keys with a value.
	Keys(ctx context.Context) ([]string, error)
}

// MaxValue is the maximum size of a value in bytes.
const MaxValue = 256 << 10

// headKey is the key of the ClusterState in the store. All other keys belong to pieces of files.
const headKey = "head"
