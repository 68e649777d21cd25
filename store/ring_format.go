package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A segment consists of a head and batches, little endian.
//
//	head:  magic (4) | version (2) | zero (2) | segment number (8) | number of the first entry (8) | CRC
//	batch: magic (4) | body length (4) | entry count (4) | first entry (8) | newest time (8) | body | CRC
//
// Each CRC is the CRC-32C (4) of all preceding bytes of the head or batch.
const (
	segmentFilePrefix = "ring-"
	segmentFileSuffix = ".segment"

	segmentMagic    = "FMG1"
	segmentVersion  = 3
	segmentHeadSize = 4 + 2 + 2 + 8 + 8 + 4

	batchMagic    = "FMB1"
	batchHeadSize = 4 + 4 + 4 + 8 + 8
	batchOverhead = batchHeadSize + 4
)

func appendSegmentHead(p []byte, s ringSegment) []byte {
	from := len(p)
	p = append(p, segmentMagic...)
	p = binary.LittleEndian.AppendUint16(p, segmentVersion)
	p = binary.LittleEndian.AppendUint16(p, 0)
	p = binary.LittleEndian.AppendUint64(p, s.number)
	p = binary.LittleEndian.AppendUint64(p, s.firstEntry)
	return binary.LittleEndian.AppendUint32(p, crc32.Checksum(p[from:], castagnoli))
}

func appendBatch(p []byte, first uint64, b RingBatch) []byte {
	from := len(p)
	p = append(p, batchMagic...)
	p = binary.LittleEndian.AppendUint32(p, uint32(len(b.Body)))
	p = binary.LittleEndian.AppendUint32(p, uint32(b.EntryCount))
	p = binary.LittleEndian.AppendUint64(p, first)
	p = binary.LittleEndian.AppendUint64(p, uint64(b.NewestEntryTime))
	p = append(p, b.Body...)
	return binary.LittleEndian.AppendUint32(p, crc32.Checksum(p[from:], castagnoli))
}

// errNotSound reports that a file contains no valid batch or segment head at the expected offset.
var errNotSound = errors.New("the ring file contains invalid data or ends too early")

// readSegmentHead reads the head of a segment. It returns a *FormatVersionError, errNotSound or a read error.
func readSegmentHead(f io.ReaderAt, path string) (ringSegment, error) {
	var p [segmentHeadSize]byte
	if _, err := f.ReadAt(p[:], 0); errors.Is(err, io.EOF) {
		return ringSegment{}, errNotSound
	} else if err != nil {
		return ringSegment{}, err
	}
	version := binary.LittleEndian.Uint16(p[4:])
	switch {
	case string(p[:4]) != segmentMagic:
		return ringSegment{}, errNotSound
	case version != segmentVersion && version != 0: // version 0 is an interrupted write, which leaves zeros
		return ringSegment{}, &FormatVersionError{path, version, segmentVersion}
	case crc32.Checksum(p[:segmentHeadSize-4], castagnoli) != binary.LittleEndian.Uint32(p[segmentHeadSize-4:]):
		return ringSegment{}, errNotSound
	}
	return ringSegment{number: binary.LittleEndian.Uint64(p[8:]), firstEntry: binary.LittleEndian.Uint64(p[16:]),
		endOffset: segmentHeadSize}, nil
}

// readBatch reads the batch at offset at in a file of size bytes. The body is stored in buf, which is grown if
// necessary. It returns errNotSound or a read error.
func readBatch(f io.ReaderAt, at, size int64, buf *[]byte) (first uint64, b RingBatch, err error) {
	if size-at < batchOverhead {
		return 0, b, errNotSound
	}
	if cap(*buf) < batchHeadSize {
		*buf = make([]byte, 4<<10)
	}
	head := (*buf)[:batchHeadSize]
	if _, err := f.ReadAt(head, at); err != nil {
		return 0, b, eofAsNotSound(err)
	}
	length := int64(binary.LittleEndian.Uint32(head[4:]))
	if string(head[:4]) != batchMagic || length > maxBatchBodyBytes || length > size-at-batchOverhead {
		return 0, b, errNotSound
	}
	all := int(length) + batchOverhead
	if cap(*buf) < all {
		*buf = make([]byte, all)
	}
	p := (*buf)[:all]
	if _, err := f.ReadAt(p, at); err != nil {
		return 0, b, eofAsNotSound(err)
	}
	b = RingBatch{EntryCount: int(binary.LittleEndian.Uint32(p[8:])),
		NewestEntryTime: int64(binary.LittleEndian.Uint64(p[20:])),
		Body:            p[batchHeadSize : all-4]}
	if crc32.Checksum(p[:all-4], castagnoli) != binary.LittleEndian.Uint32(p[all-4:]) || b.EntryCount < 1 {
		return 0, b, errNotSound
	}
	return binary.LittleEndian.Uint64(p[12:]), b, nil
}

// eofAsNotSound replaces io.EOF with errNotSound, because the file may have been truncated.
func eofAsNotSound(err error) error {
	if errors.Is(err, io.EOF) {
		return errNotSound
	}
	return err
}

// hasSoundBatchAfter reports whether a valid batch starts anywhere after the offset at.
func hasSoundBatchAfter(f io.ReaderAt, at, size int64) (bool, error) {
	const piece = 64 << 10
	var buf []byte
	window := make([]byte, piece+len(batchMagic)-1)
	for at++; at < size; at += piece {
		n := min(int64(len(window)), size-at)
		if _, err := f.ReadAt(window[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		for i := range max(0, int(n)-len(batchMagic)+1) {
			if i < piece && string(window[i:i+len(batchMagic)]) == batchMagic {
				_, _, err := readBatch(f, at+int64(i), size, &buf)
				if !errors.Is(err, errNotSound) {
					return err == nil, err
				}
			}
		}
	}
	return false, nil
}

func parseSegmentNumber(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, segmentFilePrefix+"%d"+segmentFileSuffix, &number)
	return number, err == nil && name == fmt.Sprintf("%s%012d%s", segmentFilePrefix, number, segmentFileSuffix)
}
