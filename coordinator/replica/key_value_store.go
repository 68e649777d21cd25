package replica

import (
	"context"
	"errors"
)

// ErrNone says that a key has no value.
var ErrNone = errors.New("there is no value")

// ErrConflict says that a value has another revision than the one that was to be replaced.
var ErrConflict = errors.New("the value has another revision")

// KeyValueStore keeps values under keys, on as many machines as it likes. Its methods are called from several
// goroutines, and return soon after ctx ends.
type KeyValueStore interface {
	// Get returns the value of a key and its revision. The error wraps ErrNone if there is none. Right after a change
	// it may still return what was there before.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Put gives a key a value, of at most MaxValue bytes, in the place of the one with this revision; 0 = where there
	// is none. It returns the new revision, which is higher. The error wraps ErrConflict if another value is there.
	// After any other error the value may have been put, or may yet be.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Remove removes the value of a key, if there is one.
	Remove(ctx context.Context, key string) error
	// Keys returns the keys that have values.
	Keys(ctx context.Context) ([]string, error)
}

// MaxValue bounds a value, in bytes.
const MaxValue = 256 << 10

// headKey is the key of the head. All others are pieces: see Sum.key.
const headKey = "head"
