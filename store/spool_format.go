package store

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
)

// The spool's log has no header of its own; it is a sequence of entries, little endian:
//
//	magic 4 | agent length 4 | meta length 4 | payload length 8 | digest of the payload 32 |
//	CRC-32C of agent and meta 4 | CRC-32C of the SpoolID and all before 4 | agent | meta | payload
//
// An entry with the other magic has its payload in a file apart, and the log goes on behind its meta.
//
// The last checksum makes the lengths trustworthy on their own, so that damage inside an entry costs that entry and
// not those behind it. It covers the SpoolID too: an entry cannot turn up in another round.
const (
	spoolMagic   = "FMU1"
	ownFileMagic = "FMU2"
	spoolHead    = len(spoolMagic) + 4 + 4 + 8 + sha256.Size + 4 + 4
	maxAgentName = 255
	maxMeta      = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entryHead is the decoded fixed part of a log entry.
type entryHead struct {
	agentLen, metaLen int
	payloadLen        int64
	inOwnFile         bool
	digest            [sha256.Size]byte
	namesSum          uint32 // of agent and meta
}

// totalLen is the length of the entry in the log.
func (h entryHead) totalLen() int64 {
	n := int64(spoolHead) + int64(h.agentLen) + int64(h.metaLen)
	if h.inOwnFile {
		return n
	}
	return n + h.payloadLen
}

// appendID appends the fixed binary form of id, 48 bytes.
func appendID(dst []byte, id SpoolID) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, id.Run)
	dst = binary.LittleEndian.AppendUint64(dst, id.Round)
	return append(dst, id.Base[:]...)
}

func headSum(id SpoolID, head []byte) uint32 {
	return crc32.Update(crc32.Checksum(appendID(nil, id), castagnoli), castagnoli, head)
}

// encodeEntry returns everything of e's log entry but the payload.
func encodeEntry(id SpoolID, e SpoolEntry, apart bool) []byte {
	p := make([]byte, 0, spoolHead+len(e.Agent)+len(e.SignedManifest))
	if apart {
		p = append(p, ownFileMagic...)
	} else {
		p = append(p, spoolMagic...)
	}
	p = binary.LittleEndian.AppendUint32(p, uint32(len(e.Agent)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(e.SignedManifest)))
	p = binary.LittleEndian.AppendUint64(p, uint64(e.Size))
	p = append(p, e.Digest[:]...)
	names := crc32.Update(crc32.Checksum([]byte(e.Agent), castagnoli), castagnoli, e.SignedManifest)
	p = binary.LittleEndian.AppendUint32(p, names)
	p = binary.LittleEndian.AppendUint32(p, headSum(id, p))
	p = append(p, e.Agent...)
	return append(p, e.SignedManifest...)
}

// decodeHead reads the fixed part of an entry; ok is false unless its lengths can be relied on and the whole entry
// fits into the room bytes from its start to the end of the log.
func decodeHead(id SpoolID, p []byte, room int64) (h entryHead, ok bool) {
	end := spoolHead - 4
	magic := string(p[:len(spoolMagic)])
	if magic != spoolMagic && magic != ownFileMagic || headSum(id, p[:end]) != binary.LittleEndian.Uint32(p[end:]) {
		return entryHead{}, false
	}
	p = p[len(spoolMagic):]
	agent, meta, size := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:]),
		binary.LittleEndian.Uint64(p[8:])
	if agent == 0 || agent > maxAgentName || meta > maxMeta || size > math.MaxInt64 || magic == spoolMagic &&
		size > uint64(room) {
		return entryHead{}, false
	}
	h = entryHead{agentLen: int(agent), metaLen: int(meta), payloadLen: int64(size), inOwnFile: magic == ownFileMagic}
	copy(h.digest[:], p[16:])
	h.namesSum = binary.LittleEndian.Uint32(p[16+sha256.Size:])
	return h, h.totalLen() <= room
}
