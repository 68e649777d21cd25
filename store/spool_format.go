package store

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math"
)

// The log of a spool is a sequence of entries without a file header, little endian:
//
//	magic 4 | agent length 4 | manifest length 4 | payload length 8 | digest of the payload 32 |
//	CRC-32C of agent and manifest 4 | CRC-32C of the RoundSpoolID and all preceding bytes 4 |
//	agent | manifest | payload
//
// The payload of an entry with ownFileMagic is in a separate file, so its log entry ends after the manifest.
//
// The second checksum protects the lengths, so that damage inside an entry does not affect the entries after it. It
// includes the RoundSpoolID, so that an entry is not accepted in another round.
const (
	spoolMagic         = "FMU1"
	ownFileMagic       = "FMU2"
	spoolEntryHeadSize = len(spoolMagic) + 4 + 4 + 8 + sha256.Size + 4 + 4
	maxAgentName       = 255
	maxSignedManifest  = 64 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// spoolEntryHead is the decoded fixed-size part of a log entry.
type spoolEntryHead struct {
	agentLen, manifestLen    int
	payloadLen               int64
	isInOwnFile              bool
	payloadDigest            [sha256.Size]byte
	agentAndManifestChecksum uint32 // CRC-32C of agent and manifest
}

// logEntryLen returns the length of the entry in the log.
func (h spoolEntryHead) logEntryLen() int64 {
	n := int64(spoolEntryHeadSize) + int64(h.agentLen) + int64(h.manifestLen)
	if h.isInOwnFile {
		return n
	}
	return n + h.payloadLen
}

// appendSpoolID appends the 48-byte encoding of id.
func appendSpoolID(dst []byte, id RoundSpoolID) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, id.Run)
	dst = binary.LittleEndian.AppendUint64(dst, id.Round)
	return append(dst, id.BaseModelDigest[:]...)
}

func spoolHeadChecksum(id RoundSpoolID, head []byte) uint32 {
	return crc32.Update(crc32.Checksum(appendSpoolID(nil, id), castagnoli), castagnoli, head)
}

// encodeSpoolEntryHead returns the log entry of e without its payload. apart is true if the payload is in a separate
// file.
func encodeSpoolEntryHead(id RoundSpoolID, e SpoolEntry, apart bool) []byte {
	p := make([]byte, 0, spoolEntryHeadSize+len(e.Agent)+len(e.SignedManifest))
	if apart {
		p = append(p, ownFileMagic...)
	} else {
		p = append(p, spoolMagic...)
	}
	p = binary.LittleEndian.AppendUint32(p, uint32(len(e.Agent)))
	p = binary.LittleEndian.AppendUint32(p, uint32(len(e.SignedManifest)))
	p = binary.LittleEndian.AppendUint64(p, uint64(e.PayloadSize))
	p = append(p, e.PayloadDigest[:]...)
	names := crc32.Update(crc32.Checksum([]byte(e.Agent), castagnoli), castagnoli, e.SignedManifest)
	p = binary.LittleEndian.AppendUint32(p, names)
	p = binary.LittleEndian.AppendUint32(p, spoolHeadChecksum(id, p))
	p = append(p, e.Agent...)
	return append(p, e.SignedManifest...)
}

// decodeSpoolEntryHead decodes the fixed-size part of an entry. ok is false if the checksum is wrong, or if the entry
// is longer than room, the number of bytes between its start and the end of the log.
func decodeSpoolEntryHead(id RoundSpoolID, p []byte, room int64) (h spoolEntryHead, ok bool) {
	end := spoolEntryHeadSize - 4
	magic := string(p[:len(spoolMagic)])
	if magic != spoolMagic && magic != ownFileMagic || spoolHeadChecksum(id,
		p[:end]) != binary.LittleEndian.Uint32(p[end:]) {
		return spoolEntryHead{}, false
	}
	p = p[len(spoolMagic):]
	agent, meta, size := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint32(p[4:]),
		binary.LittleEndian.Uint64(p[8:])
	if agent == 0 || agent > maxAgentName || meta > maxSignedManifest || size > math.MaxInt64 || magic == spoolMagic &&
		size > uint64(room) {
		return spoolEntryHead{}, false
	}
	h = spoolEntryHead{agentLen: int(agent), manifestLen: int(meta), payloadLen: int64(size),
		isInOwnFile: magic == ownFileMagic}
	copy(h.payloadDigest[:], p[16:])
	h.agentAndManifestChecksum = binary.LittleEndian.Uint32(p[16+sha256.Size:])
	return h, h.logEntryLen() <= room
}
