package world

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"strings"

	"github.com/fedmesh/fedmesh/round"
	"github.com/fedmesh/fedmesh/wire"
)

// Files of the parties that consist of two slots (store.RecordSlots). The world parses them independently of the
// daemons' code.
const (
	runFile    = stateDir + "/run"
	modelFile  = stateDir + "/model"
	updateFile = stateDir + "/update"
	obeyedFile = stateDir + "/obeyed"
	ownFile    = stateDir + "/personal"
	sealsFile  = stateDir + "/seals"
	unsentFile = stateDir + "/unsent" // file with a single record, which does not use slots
)

// isSlot reports whether a file is one of two slots, and returns the name without the slot suffix.
func isSlot(name string) (string, bool) {
	base, isA := strings.CutSuffix(name, ".a")
	base, isB := strings.CutSuffix(base, ".b")
	return base, isA || isB
}

// slots returns the bodies of all valid slots, newest first. read returns the content of a file.
func slots(read func(name string) []byte, name string) (bodies [][]byte) {
	newest := uint64(0)
	for _, copied := range []string{".a", ".b"} {
		const head = 24
		p := read(name + copied)
		if len(p) < head || string(p[:4]) != "FMS1" {
			continue
		}
		sequence, length := binary.LittleEndian.Uint64(p[8:]), binary.LittleEndian.Uint64(p[16:])
		end := head + length
		if end > uint64(len(p)-4) || crc32.Checksum(p[:end], crc32.MakeTable(crc32.Castagnoli)) !=
			binary.LittleEndian.Uint32(p[end:]) {
			continue
		}
		if bodies = append(bodies, p[head:end]); sequence > newest {
			bodies[0], bodies[len(bodies)-1], newest = bodies[len(bodies)-1], bodies[0], sequence
		}
	}
	return bodies
}

// slot returns the body of the newest valid slot, or nil.
func slot(read func(name string) []byte, name string) []byte {
	if bodies := slots(read, name); len(bodies) > 0 {
		return bodies[0]
	}
	return nil
}

// recordOf returns the coordinator's journal record.
func recordOf(read func(name string) []byte) (r round.JournalRecord, ok bool) {
	var saved struct{ Record round.JournalRecord }
	err := json.Unmarshal(slot(read, runFile), &saved)
	return saved.Record, err == nil
}

// sealsOf returns the public key with which agents must encrypt messages for the coordinator. The key is zero if the
// file contains no key.
func sealsOf(read func(name string) []byte) (announced wire.X25519PublicKey, err error) {
	var saved struct{ Secrets []wire.SealSecret }
	if err = json.Unmarshal(slot(read, sealsFile), &saved); err == nil && len(saved.Secrets) > 0 {
		announced, err = saved.Secrets[0].PublicKey()
	}
	return announced, err
}

// placeOf returns the position (run, round and attempt) of the last announcement that an agent has followed.
func placeOf(read func(name string) []byte) (o wire.AnnouncementPosition) {
	b := slot(read, obeyedFile)
	if len(b) < 33 {
		return o
	}
	return wire.AnnouncementPosition{
		Root: wire.RootVersion(binary.LittleEndian.Uint32(b)), Epoch: wire.Epoch(binary.LittleEndian.Uint64(b[4:])),
		Run: wire.RunID(binary.LittleEndian.Uint64(b[12:])), Round: wire.RoundID(binary.LittleEndian.Uint64(b[20:])),
		Attempt: wire.RoundAttempt(binary.LittleEndian.Uint32(b[28:])), Phase: wire.AnnouncementPhase(b[32]),
	}
}

// updateOf returns the update on an agent's disk: the round in which the agent participated, the payload of the update,
// and the data that follow the payload.
func updateOf(read func(name string) []byte, id wire.AgentID) (at participation, payload, behind []byte, ok bool) {
	b := slot(read, updateFile)
	if len(b) < 28 {
		return at, nil, nil, false
	}
	at = participation{wire.RunID(binary.LittleEndian.Uint64(b[8:])), wire.RoundID(binary.LittleEndian.Uint64(b[16:])),
		id}
	n := min(28+int(binary.LittleEndian.Uint32(b[24:])), len(b))
	u, err := wire.DecodeUpdate(b[28:n])
	if err != nil || len(b)-n < int(u.PayloadManifest.BlobLength) {
		return at, nil, nil, false
	}
	end := n + int(u.PayloadManifest.BlobLength)
	return at, b[n:end], b[end:], true
}

// settledUnsent returns the last round for which the agent's disk contains the fate of the update, that is, whether the
// coordinator used the update.
func settledUnsent(read func(name string) []byte) wire.RoundID {
	b := read(unsentFile)
	const head, of = 10, 80
	if len(b) < head+of || wire.Digest(b[head+48:head+of]) != (wire.Digest{}) {
		return 0
	}
	return wire.RoundID(binary.LittleEndian.Uint64(b[head+8:]))
}

// own is the personal state that an agent has saved. It contains the run and the round of the agent's last training,
// and the state before and after this training.
type own struct {
	run           wire.RunID
	round         wire.RoundID
	before, after []byte
}

// ownOf returns the newest personal state on an agent's disk.
func ownOf(read func(name string) []byte) (o own, ok bool) {
	b := slot(read, ownFile)
	const head = 80
	if len(b) < head {
		return o, false
	}
	half := (len(b) - head) / 2
	return own{wire.RunID(binary.LittleEndian.Uint64(b)), wire.RoundID(binary.LittleEndian.Uint64(b[8:])),
		bytes.Clone(b[head:][:half]), bytes.Clone(b[head+half:])}, true
}

// modelOf returns the hash and the content of a model file on the coordinator's disk. file is nil if no slot contains
// the model.
func modelOf(read func(name string) []byte, run wire.RunID, version wire.ModelVersion) (hash wire.Digest, file []byte) {
	for _, b := range slots(read, modelFile) {
		const head = 56
		if len(b) < head || wire.RunID(binary.LittleEndian.Uint64(b)) != run ||
			wire.ModelVersion(binary.LittleEndian.Uint64(b[8:])) != version {
			continue
		}
		return wire.Digest(b[16:48]), b[head : head+binary.LittleEndian.Uint64(b[48:])]
	}
	return hash, nil
}
