package uploads

import (
	"cmp"
	"errors"
	"io"
	"math"

	"github.com/fedmesh/fedmesh/codec"
	"github.com/fedmesh/fedmesh/learner"
	"github.com/fedmesh/fedmesh/mqtt/transfer"
	"github.com/fedmesh/fedmesh/wire"
)

// checked is the maximum number of bytes of an update that are checked at a time.
const checked = 8 << 10

// updateLimits contains the requirements for the vector of a training update.
type updateLimits struct {
	elementCount  int
	maxUpdateNorm float64 // maximum Euclidean norm; 0 means no limit
}

// checkUpdate returns the Euclidean norm ‖v‖₂ of an update's vector, or the reason for refusing the update. err
// explains the reason. If err is set without a reason, it is a read error.
func (u *Uploads) checkUpdate(m *wire.Update, size int64, data transfer.ChunkStorage, want updateLimits) (float64,
	wire.UpdateRefusalReason, error) {
	if m.Kind == wire.KindStatistics {
		return checkMoments(m, size, data)
	}
	of := codec.ForName[float32](m.PayloadManifest.Codec)
	squares, failed, err := 0.0, error(nil), error(nil)
	if codec.DecodesOnlyWholeVectors(of) {
		u.unpackMutex.Lock() // only one whole vector may be in memory at a time
		squares, failed, err = checkWholeVector(of, size, data, want.elementCount)
		u.unpackMutex.Unlock()
	} else {
		squares, failed, err = checkVectorPiecewise(of, size, data)
	}
	norm := math.Sqrt(squares)
	switch {
	case err != nil:
		return 0, 0, err
	case errors.Is(failed, wire.ErrNotFinite):
		return 0, wire.RefuseNotFinite, nil
	case failed != nil:
		return 0, wire.RefuseWrongSchema, nil
	case want.maxUpdateNorm > 0 && norm > want.maxUpdateNorm:
		return 0, wire.RefuseNormTooLarge, nil
	}
	return norm, 0, nil
}

// checkWholeVector returns the squared norm ‖v‖₂² of a vector that can only be decoded as a whole. failed is a decoding
// error, err a read error.
func checkWholeVector(of codec.Codec[float32], size int64, data transfer.ChunkStorage, elements int) (squares float64,
	failed, err error) {
	payload := make([]byte, 0, size)
	if err := forEachPayloadPiece(size, data, func(piece []byte) { payload = append(payload, piece...) }); err != nil {
		return 0, nil, err
	}
	v := make([]float32, elements)
	failed = of.Decode(v, payload)
	return learner.AddSquares(0, v), failed, nil
}

// checkVectorPiecewise returns the squared norm ‖v‖₂² of a vector that can be decoded in pieces. failed is a decoding
// error, err a read error.
func checkVectorPiecewise(of codec.Codec[float32], size int64, data transfer.ChunkStorage) (squares float64, failed,
	err error) {
	elements, unit := of.IndependentUnitSize()
	v := make([]float32, (min(int(size), checked)/unit+1)*elements) // small enough for the processor's cache
	take := func(units []byte, n int) {
		failed = cmp.Or(failed, of.Decode(v[:n], units))
		squares = learner.AddSquares(squares, v[:n])
	}
	rest := make([]byte, 0, unit) // start of a unit that continues in the next piece
	err = forEachPayloadPiece(size, data, func(piece []byte) {
		if len(rest) > 0 {
			n := min(unit-len(rest), len(piece))
			rest, piece = append(rest, piece[:n]...), piece[n:]
			if len(rest) < unit {
				return
			}
			take(rest, elements)
			rest = rest[:0]
		}
		for len(piece) >= unit {
			part := piece[:min(len(piece), checked)/unit*unit]
			take(part, len(part)/unit*elements)
			piece = piece[len(part):]
		}
		rest = append(rest, piece...)
	})
	if len(rest) > 0 { // the last unit may have fewer elements
		n := 1
		for n < elements && of.EncodedSize(n+1) <= len(rest) { // for int4 n may be one too high; the extra element is 0
			n++
		}
		take(rest, n)
	}
	return squares, failed, err
}

// checkMoments checks an update of a statistics round. It verifies that the moments are possible for the claimed number
// of rows.
func checkMoments(m *wire.Update, size int64, data transfer.ChunkStorage) (float64, wire.UpdateRefusalReason, error) {
	payload := make([]byte, 0, size)
	if err := forEachPayloadPiece(size, data, func(piece []byte) { payload = append(payload, piece...) }); err != nil {
		return 0, 0, err
	}
	v := make([]float64, len(payload)/8)
	err := wire.DecodeVector(v, payload)
	switch {
	case errors.Is(err, wire.ErrNotFinite):
		return 0, wire.RefuseNotFinite, nil
	case err != nil:
		return 0, wire.RefuseWrongSchema, nil
	}
	moments, err := learner.ColumnMomentsFromVector(v)
	if err == nil {
		err = moments.CheckPlausible(m.Samples)
	}
	if err != nil {
		return 0, wire.RefuseMalformed, err
	}
	return math.Sqrt(learner.AddSquares(0, v)), 0, nil
}

// forEachPayloadPiece calls take with each piece of a payload in order.
func forEachPayloadPiece(size int64, data transfer.ChunkStorage, take func(piece []byte)) error {
	if m, ok := data.(*transfer.MemoryChunkStorage); ok {
		for _, piece := range m.ChunkPayloads() {
			take(piece)
		}
		return nil
	}
	r := io.NewSectionReader(data.(io.ReaderAt), 0, size)
	piece := make([]byte, wire.MaxChunkBytes/8*8)
	for {
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			take(piece[:n])
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}
