package grid

// queuedReading is a reading in the queue, in which it waits for the watermark.
type queuedReading struct {
	time   int64
	value  float64
	source uint64
	// packedInputAndNumber holds the index of the input in the high bits and the line number or arrival number in the
	// low bits.
	packedInputAndNumber uint64
}

const readingNumberBits = 48 // number of low bits of packedInputAndNumber

func (w queuedReading) inputIndex() int { return int(w.packedInputAndNumber >> readingNumberBits) }

func (w queuedReading) readingNumber() int64 {
	return int64(w.packedInputAndNumber & (1<<readingNumberBits - 1))
}

// before orders readings by time, input, source and number. The order of arrival matters only within one source, so
// that a sum over several sources is bit-identical for any order of arrival.
func (w queuedReading) before(o queuedReading) bool {
	switch {
	case w.time != o.time:
		return w.time < o.time
	case w.inputIndex() != o.inputIndex():
		return w.inputIndex() < o.inputIndex()
	case w.source != o.source:
		return w.source < o.source
	}
	return w.packedInputAndNumber < o.packedInputAndNumber
}

// readingQueue is a binary heap in the order of queuedReading.before.
type readingQueue []queuedReading

func (q *readingQueue) push(w queuedReading) {
	h := append(*q, w)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !w.before(h[up]) {
			break
		}
		h[i], i = h[up], up
	}
	h[i], *q = w, h
}

func (q *readingQueue) pop() queuedReading {
	h := *q
	top, last := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	i := 0
	for {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if down >= len(h) || !h[down].before(last) {
			break
		}
		h[i], i = h[down], down
	}
	if len(h) > 0 {
		h[i] = last
	}
	*q = h
	return top
}
