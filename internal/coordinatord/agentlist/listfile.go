package agentlist

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/fedmesh/fedmesh/coordinator/enrolled"
	"github.com/fedmesh/fedmesh/internal/keys"
	"github.com/fedmesh/fedmesh/store"
	"github.com/fedmesh/fedmesh/wire"
)

// listFile is the text file with the agents' public keys. Empty lines and lines that start with # are ignored.
type listFile struct {
	*os.File
	stamp store.FileStamp
}

func openListFile(path string) (listFile, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; create the file with a line \"ID KEY\" for each agent, where KEY is the public key "+
			"printed by `agentd key new`", err)
	}
	if err != nil {
		return listFile{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return listFile{}, errors.Join(err, f.Close())
	}
	return listFile{f, store.FileStampOf(info)}, nil
}

// eachAgent calls take for each agent, from the beginning of the file. Errors contain the line number.
func (t listFile) eachAgent(take func(line int, id wire.AgentID, key ed25519.PublicKey) error) error {
	if _, err := t.Seek(0, 0); err != nil {
		return err
	}
	s := bufio.NewScanner(t)
	for line := 1; s.Scan(); line++ {
		content := bytes.TrimSpace(s.Bytes())
		if len(content) == 0 || content[0] == '#' {
			continue
		}
		id, key, err := parseAgent(content)
		if err == nil {
			err = take(line, id, key)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", t.Name(), line, err)
		}
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", t.Name(), err)
	}
	return nil
}

func parseAgent(line []byte) (wire.AgentID, ed25519.PublicKey, error) {
	fields := bytes.Fields(line)
	if len(fields) != 2 {
		return "", nil, errors.New("invalid line: want an agent id and its public key in base64, separated by a space")
	}
	id := wire.AgentID(fields[0])
	if err := id.ValidateNonCoordinator(); err != nil {
		return "", nil, err
	}
	key, err := keys.ParsePublic(string(fields[1]))
	return id, key, err
}

// toListBuilder reads the list. It returns an error if an id or a key occurs twice.
func (t listFile) toListBuilder() (*enrolled.ListBuilder, error) {
	lines := 1
	for s := bufio.NewScanner(t); s.Scan(); {
		lines++
	}
	all := enrolled.NewListBuilder(lines)
	err := t.eachAgent(func(_ int, id wire.AgentID, key ed25519.PublicKey) error {
		all.Add(id, key)
		return nil
	})
	if err != nil {
		return nil, err
	}
	key := slices.Clone(all.FindRepeatedKey())
	if is, repeated := all.FindRepeatedID(); repeated {
		return nil, t.duplicateError(func(id wire.AgentID, _ ed25519.PublicKey) bool { return is(id) },
			func(id, _ wire.AgentID, line int) error {
				return fmt.Errorf("duplicate agent %s, also in line %d: remove one of the lines", id, line)
			})
	}
	if key != nil {
		return nil, t.duplicateError(func(_ wire.AgentID, k ed25519.PublicKey) bool { return key.Equal(k) },
			func(id, before wire.AgentID, line int) error {
				return fmt.Errorf("agent %s has the same key as agent %s in line %d: each device requires its own "+
					"key; create one with `key new`", id, before, line)
			})
	}
	return all, nil
}

// duplicateError returns an error for the second line for which holds returns true.
func (t listFile) duplicateError(holds func(wire.AgentID, ed25519.PublicKey) bool,
	problem func(id, before wire.AgentID, line int) error) error {
	var before wire.AgentID
	first := 0
	err := t.eachAgent(func(line int, id wire.AgentID, key ed25519.PublicKey) error {
		switch {
		case !holds(id, key):
			return nil
		case first == 0:
			first, before = line, id
			return nil
		}
		return problem(id, before, first)
	})
	if err == nil {
		err = fmt.Errorf("%s changed while it was being read", t.Name())
	}
	return err
}

// IDs reads the list and returns its agent ids in ascending order.
func IDs(path string) ([]wire.AgentID, error) {
	t, err := openListFile(path)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	if _, err := t.toListBuilder(); err != nil {
		return nil, err
	}
	var ids []wire.AgentID
	err = t.eachAgent(func(_ int, id wire.AgentID, _ ed25519.PublicKey) error {
		ids = append(ids, id)
		return nil
	})
	slices.Sort(ids)
	return ids, err
}

// Count returns the number of agents in the list file at path. If the compiled list (see [OpenCompiledList]) is up to
// date, the count is read from there.
func Count(path, compiled string) (int, error) {
	t, err := openListFile(path)
	if err != nil {
		return 0, err
	}
	defer t.Close()
	if n, err := enrolled.CountAgents(store.LocalDisk, compiled, t.stamp); err == nil {
		return n, nil
	}
	all, err := t.toListBuilder()
	if err != nil {
		return 0, err
	}
	return all.Len(), nil
}

// OpenCompiledList opens the compiled form of the list. It compiles the list again in three cases: the compiled file is
// missing, it is older than the list, or it was made so soon after a change that a later change could have the same
// timestamp.
func OpenCompiledList(path, compiled string, now time.Time) (*enrolled.List, error) {
	t, err := openListFile(path)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	list, err := enrolled.Open(store.LocalDisk, compiled, t.stamp)
	if !errors.Is(err, enrolled.ErrStale) {
		return list, err
	}
	if !t.stamp.IsConclusive(now) {
		t.stamp = store.FileStamp{} // matches no file, so the next start compiles the list again
	}
	all, err := t.toListBuilder()
	if err != nil {
		return nil, err
	}
	if err := all.Save(store.LocalDisk, compiled, t.stamp); err != nil {
		return nil, err
	}
	all = nil
	debug.FreeOSMemory() // compiling a list of a million agents used 100 MB
	return enrolled.Open(store.LocalDisk, compiled, t.stamp)
}
