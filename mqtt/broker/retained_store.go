package broker

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

const (
	keptSuffix    = ".retained"
	partialSuffix = ".partial"
	// keptHeader is the length in bytes of a file's header: a CRC-32C checksum of the rest (little-endian), the QoS,
	// and the length of the topic. The topic and the payload follow.
	keptHeader = 4 + 1 + 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// retainedStore keeps one file for each retained message in a folder. The file is named by the hash of the topic. Files
// are replaced atomically but not synced, because thousands of reconnecting devices would wear out a flash card. The
// checksum detects a file that a power cut damaged; the coordinator publishes lost messages again.
type retainedStore struct {
	dir    string
	topics *mochi.TopicsIndex
	logger *slog.Logger

	mu      sync.Mutex
	failing bool
}

// load loads all retained messages from the folder. It removes damaged files.
func (k *retainedStore) load(maxPacket int) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("cannot create the folder for retained messages: %w", err)
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return fmt.Errorf("cannot read the folder for retained messages: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(k.dir, e.Name())
		switch {
		case strings.HasSuffix(e.Name(), partialSuffix):
			_ = os.Remove(path)
		case strings.HasSuffix(e.Name(), keptSuffix):
			pk, err := readRetained(path, maxPacket)
			if err != nil {
				k.logger.Warn("broker removed an unreadable retained message", "file", path, "error", err)
				_ = os.Remove(path)
				continue
			}
			k.topics.RetainMessage(pk)
		}
	}
	return nil
}

func readRetained(path string, maxPacket int) (pk packets.Packet, err error) {
	f, err := os.Open(path)
	if err != nil {
		return pk, err
	}
	defer func() { _ = f.Close() }()
	p, err := io.ReadAll(io.LimitReader(f, int64(keptHeader+maxPacket+1)))
	if err != nil {
		return pk, err
	}
	if len(p) < keptHeader || len(p) > keptHeader+maxPacket ||
		binary.LittleEndian.Uint32(p) != crc32.Checksum(p[4:], castagnoli) {
		return pk, errors.New("file is corrupt")
	}
	qos, topic := p[4], int(binary.LittleEndian.Uint16(p[5:]))
	if body := p[keptHeader:]; topic < len(body) && filepath.Base(path) == retainedFileName(string(body[:topic])) {
		return packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Retain: true, Qos: qos},
			TopicName:   string(body[:topic]),
			Payload:     body[topic:],
			Created:     time.Now().Unix(),
		}, nil
	}
	return pk, errors.New("file name does not match the topic in the file")
}

func retainedFileName(topic string) string {
	hash := sha256.Sum256([]byte(topic))
	return hex.EncodeToString(hash[:16]) + keptSuffix
}

// saveTopic writes the current retained message of a topic to its file. It reads the message from mochi's index,
// because concurrent publishers may call saveTopic in a different order.
func (k *retainedStore) saveTopic(topic string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	path := filepath.Join(k.dir, retainedFileName(topic))
	pk, ok := k.topics.Retained.Get(topic)
	var err error
	if ok {
		err = replace(path, encodeRetained(pk))
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil && !k.failing {
		k.logger.Error("broker cannot store retained messages on disk: a restart may lose some of these messages",
			"error", err)
	}
	k.failing = err != nil
}

func encodeRetained(pk packets.Packet) []byte {
	var b bytes.Buffer
	b.Grow(keptHeader + len(pk.TopicName) + len(pk.Payload))
	b.Write([]byte{0, 0, 0, 0, pk.FixedHeader.Qos, byte(len(pk.TopicName)), byte(len(pk.TopicName) >> 8)})
	b.WriteString(pk.TopicName)
	b.Write(pk.Payload)
	binary.LittleEndian.PutUint32(b.Bytes(), crc32.Checksum(b.Bytes()[4:], castagnoli))
	return b.Bytes()
}

// replace replaces a file atomically. If that fails, it removes the file, so that a restart does not restore an old
// message.
func replace(path string, data []byte) error {
	partial := path + partialSuffix
	err := os.WriteFile(partial, data, 0o600)
	if err == nil {
		err = os.Rename(partial, path)
	}
	if err != nil {
		_, _ = os.Remove(partial), os.Remove(path)
	}
	return err
}
