// Package jetstream implements replica.KeyValueStore as a NATS JetStream stream on an odd number of servers. The stream
// has the layout of a key-value bucket, so that `nats kv` can display it. Unlike in a bucket, values are always read
// from the leader of the stream.
package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedmesh/fedmesh/coordinator/replica"
)

// Options configures the connection and the stream.
type Options struct {
	URLs   []string
	Bucket string // name of the bucket, with characters a-z, 0-9, _ and -
	// StreamReplicas is the number of servers that store the stream; 3 tolerate the loss of one.
	StreamReplicas int
	Logger         *slog.Logger
	// ConnectOptions contains the client's TLS settings and credentials.
	ConnectOptions []nats.Option
}

// reconnectEvery is the delay before a reconnect attempt.
const reconnectEvery = 500 * time.Millisecond

// KeyValueStore is a key-value bucket in a JetStream stream. It connects and creates the stream on first use, and
// reconnects when necessary.
type KeyValueStore struct {
	options Options
	conn    *nats.Conn
	js      jetstream.JetStream

	mu     sync.Mutex
	stream jetstream.Stream // stream of the bucket; nil before the first use
}

// Open returns a store. No server needs to be reachable yet. It returns an error if the options are invalid.
func Open(o Options) (*KeyValueStore, error) {
	s := &KeyValueStore{options: o}
	options := append([]nats.Option{nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true),
		nats.ReconnectWait(reconnectEvery), nats.ReconnectJitter(reconnectEvery, reconnectEvery),
		nats.ReconnectBufSize(-1),   // disable buffering while disconnected, because callers retry
		nats.IgnoreAuthErrorAbort(), // a server may accept this client later
		nats.Timeout(2 * time.Second), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				o.Logger.Warn("connection to the cluster's state store lost", "err", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			o.Logger.Info("connected to the cluster's state store", "server", c.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			o.Logger.Warn("error from the cluster's state store", "err", err)
		}),
	}, o.ConnectOptions...)
	var err error
	if s.conn, err = nats.Connect(strings.Join(o.URLs, ","), options...); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		s.conn.Close()
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return s, nil
}

// Close closes the connection.
func (s *KeyValueStore) Close() { s.conn.Close() }

// streamName returns the stream's name, in the format of key-value buckets.
func (s *KeyValueStore) streamName() string { return "KV_" + s.options.Bucket }

func (s *KeyValueStore) subjectForKey(key string) string {
	return "$KV." + s.options.Bucket + "." + key
}

// openStream returns the stream. The first replica creates it.
func (s *KeyValueStore) openStream(ctx context.Context) (jetstream.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream != nil {
		return s.stream, nil
	}
	stream, err := s.js.Stream(ctx, s.streamName())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: s.streamName(), Subjects: []string{s.subjectForKey(">")},
			Description:       "state of the coordinator of a federation",
			MaxMsgsPerSubject: 1, MaxMsgs: -1, MaxBytes: -1, MaxConsumers: -1, MaxMsgSize: -1,
			Discard: jetstream.DiscardNew, Storage: jetstream.FileStorage, Replicas: s.options.StreamReplicas,
			AllowRollup: true, DenyDelete: true, Duplicates: 2 * time.Minute,
		})
	}
	if err != nil {
		return nil, s.newCallError("open the stream "+s.streamName(), err)
	}
	s.stream = stream
	return stream, nil
}

// newCallError wraps the error of a call. If the client is disconnected, it replaces the error with errNoLink and the
// last connection error, which are easier to understand.
func (s *KeyValueStore) newCallError(what string, err error) error {
	if !s.conn.IsConnected() {
		err = errNoLink
		if last := s.conn.LastError(); last != nil {
			err = fmt.Errorf("%w: %w", err, last)
		}
	}
	return fmt.Errorf("cannot %s: %w", what, err)
}

var errNoLink = errors.New("no server is reachable")

// Get implements replica.KeyValueStore.
func (s *KeyValueStore) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	stream, err := s.openStream(ctx)
	if err != nil {
		return nil, 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, s.subjectForKey(key))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, fmt.Errorf("%s: %w", key, replica.ErrNone)
	}
	if err != nil {
		return nil, 0, s.newCallError("read "+key, err)
	}
	return m.Data, m.Sequence, nil
}

// Put implements replica.KeyValueStore.
func (s *KeyValueStore) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if _, err := s.openStream(ctx); err != nil {
		return 0, err
	}
	ack, err := s.js.Publish(ctx, s.subjectForKey(key), value, jetstream.WithExpectLastSequencePerSubject(revision),
		jetstream.WithRetryAttempts(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, fmt.Errorf("%s: %w: %s", key, replica.ErrConflict, refused.Description)
	}
	if err != nil {
		return 0, s.newCallError("write "+key, err)
	}
	return ack.Sequence, nil
}

// Remove implements replica.KeyValueStore.
func (s *KeyValueStore) Remove(ctx context.Context, key string) error {
	stream, err := s.openStream(ctx)
	if err == nil {
		err = stream.Purge(ctx, jetstream.WithPurgeSubject(s.subjectForKey(key)))
	}
	if err != nil {
		return s.newCallError("remove "+key, err)
	}
	return nil
}

// Keys implements replica.KeyValueStore.
func (s *KeyValueStore) Keys(ctx context.Context) (keys []string, err error) {
	stream, err := s.openStream(ctx)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(s.subjectForKey(">")))
	if err != nil {
		return nil, s.newCallError("list the keys", err)
	}
	for subject := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(subject, s.subjectForKey("")))
	}
	return keys, nil
}
