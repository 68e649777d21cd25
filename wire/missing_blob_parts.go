package wire

// MaxMissingParts is the maximum number of missing chunks that a hello message requests.
const MaxMissingParts = 64

// MissingBlobParts lists the parts of a blob that the broker does not return to an agent. The agent asks the
// coordinator to publish these parts again.
type MissingBlobParts struct {
	BlobDigest      Digest // digest of the blob; zero means no parts are missing
	ManifestMissing bool
	Chunks          []uint32 // numbers of the missing chunks, in ascending order
}

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
				r.failf("chunk %d is listed after chunk %d: chunks must be in ascending order", k, l.Chunks[n-1])
			}
			l.Chunks = append(l.Chunks, k)
		}
	}}
}
