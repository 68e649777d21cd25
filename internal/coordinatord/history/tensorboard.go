package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"

	"github.com/fedmesh/fedmesh/coordinator/runs"
	"github.com/fedmesh/fedmesh/wire"
)

// tensorBoardSink writes one event file per run, each in its own folder. An event file is a sequence of TFRecords
// (length, its CRC, data, its CRC; little endian). Each record is an Event of TensorBoard's event.proto. A scalar
// needs four fields of an Event.
type tensorBoardSink struct {
	dir            string
	eventFileByRun map[wire.RunID]*os.File
}

// NewTensorBoardSink returns a sink that writes DIR/run-RUN/events.out.tfevents.RUN for `tensorboard --logdir DIR`. It
// replaces files of an earlier export.
func NewTensorBoardSink(dir string) Sink { return &tensorBoardSink{dir, map[wire.RunID]*os.File{}} }

func (s *tensorBoardSink) WriteRound(e *runs.HistoryEntry) error {
	if !hasModelMetrics(e) {
		return nil // an entry without metrics, such as an abandoned round
	}
	f, err := s.eventFile(e)
	if err != nil {
		return err
	}
	var values []byte // encoded entries of the field Summary.value (number 1)
	for _, m := range roundMetrics(e) {
		if m.value == nil {
			continue
		}
		v := appendBytesField(nil, 1, []byte(m.name)) // Value.tag
		v = append(v, 2<<3|protoFixed32)              // Value.simple_value
		v = binary.LittleEndian.AppendUint32(v, math.Float32bits(float32(*m.value)))
		values = appendBytesField(values, 1, v)
	}
	event := append(eventWithWallTime(e), 2<<3|protoVarint) // Event.step
	event = binary.AppendUvarint(event, uint64(e.Version))
	_, err = f.Write(frameTFRecord(appendBytesField(event, 5, values))) // Event.summary
	return err
}

// eventFile returns the event file of a run. If the file does not exist yet, it creates the file and writes the first
// record, which contains the format version.
func (s *tensorBoardSink) eventFile(e *runs.HistoryEntry) (*os.File, error) {
	if f := s.eventFileByRun[e.Run]; f != nil {
		return f, nil
	}
	dir := filepath.Join(s.dir, fmt.Sprintf("run-%d", e.Run))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%d", e.Run)))
	if err != nil {
		return nil, err
	}
	s.eventFileByRun[e.Run] = f
	_, err = f.Write(frameTFRecord(appendBytesField(eventWithWallTime(e), 3,
		[]byte("brain.Event:2")))) // Event.file_version
	return f, err
}

func (s *tensorBoardSink) Close() error {
	var errs []error
	for _, f := range s.eventFileByRun {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// The protocol buffer wire types used here.
const (
	protoVarint    = 0
	protoFixed64   = 1
	protoDelimited = 2
	protoFixed32   = 5
)

// appendBytesField appends a length-delimited field.
func appendBytesField(b []byte, number int, content []byte) []byte {
	b = append(b, byte(number<<3|protoDelimited))
	return append(binary.AppendUvarint(b, uint64(len(content))), content...)
}

// eventWithWallTime returns the beginning of an Event, with its time.
func eventWithWallTime(e *runs.HistoryEntry) []byte {
	at := 0.0
	if !e.Time.IsZero() {
		at = float64(e.Time.UnixMicro()) / 1e6
	}
	return binary.LittleEndian.AppendUint64([]byte{1<<3 | protoFixed64}, math.Float64bits(at)) // Event.wall_time
}

func frameTFRecord(data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, maskedCRC(b))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, maskedCRC(data))
}

// maskedCRC returns the masked CRC-32C of TFRecords.
func maskedCRC(data []byte) uint32 {
	c := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}
