package wire

// MaxMissingParts bounds the chunks that a hello asks for.
const MaxMissingParts = 64

// MissingBlobParts names parts of a blob that the broker does not return to an agent. The coordinator is asked to
// publish them once more.
type MissingBlobParts struct {
	BlobDigest      Digest // zero = nothing is lacking
	ManifestMissing bool
	Chunks          []uint32 // ascending
}

// missingPartsCodec is the section of a hello.
func (l *MissingBlobParts) missingPartsCodec() sectionCodec {
	return sectionCodec{"lacks", IgnoreUnknownSection, func(w *writer) {
		if l.BlobDigest.IsZero() {
			return
		}
		w.digest(l.BlobDigest)
		w.bool(l.ManifestMissing)
		w.u32(uint32(len(l.Chunks)))
		for _, k := range l.Chunks {
			w.u32(k)
		}
	}, func(r *reader) {
		l.BlobDigest, l.ManifestMissing = r.digest(), r.bool("manifest")
		for range r.listLength("chunks", MaxMissingParts, 4) {
			k := r.u32()
			if n := len(l.Chunks); n > 0 && l.Chunks[n-1] >= k {
				r.failf("chunk %d after %d: they must ascend", k, l.Chunks[n-1])
			}
			l.Chunks = append(l.Chunks, k)
		}
	}}
}
