package agentlist

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// LookupResult is the result of looking up a device and a key in a list of agents.
type LookupResult struct {
	AgentKey  ed25519.PublicKey // key of the device; nil if the device is not in the list
	KeyHolder wire.AgentID      // agent with the key; empty if no agent has it
}

// LookupAgentAndKey looks up a device and a key in the list file. A missing file is an empty list.
func LookupAgentAndKey(path string, id wire.AgentID, key ed25519.PublicKey) (l LookupResult, err error) {
	t, err := openListFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, err
	}
	defer t.Close()
	err = t.eachAgent(func(_ int, other wire.AgentID, k ed25519.PublicKey) error {
		if other == id {
			l.AgentKey = k
		}
		if k.Equal(key) {
			l.KeyHolder = other
		}
		return nil
	})
	return l, err
}

// EditListFile removes devices from a list and adds one unless its key is nil. Comments and all other lines are kept.
// The file is replaced atomically and durably. A missing file is an empty list.
func EditListFile(disk store.Disk, path string, remove []wire.AgentID, id wire.AgentID, key ed25519.PublicKey) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var fresh bytes.Buffer
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && slices.Contains(remove, wire.AgentID(fields[0])) {
			continue
		}
		fresh.WriteString(strings.TrimSuffix(line, "\n") + "\n")
	}
	if key != nil {
		fmt.Fprintf(&fresh, "%s %s\n", id, keys.FormatPublic(key))
	}
	return disk.WriteFileDurably(path, fresh.Bytes(), 0o666)
}
