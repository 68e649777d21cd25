package replica

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/fedmesh/fedmesh/wire"
)

// PieceHash is the SHA-256 hash of a piece of a replicated file.
type PieceHash [sha256.Size]byte

// piecePrefix is the key prefix of pieces in the store.
const piecePrefix = "piece."

func (s PieceHash) storeKey() string { return piecePrefix + hex.EncodeToString(s[:]) }

// MarshalText implements encoding.TextMarshaler.
func (s PieceHash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(s[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *PieceHash) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err == nil && len(b) != len(s) {
		err = fmt.Errorf("the hash has %d bytes, want %d", len(b), len(s))
	}
	if err != nil {
		return fmt.Errorf("invalid hash of a piece of the state folder: %w", err)
	}
	copy(s[:], b)
	return nil
}

// ClusterState is the state of the cluster in the store: the leader and the files of the replicated folder.
type ClusterState struct {
	Leader   string     // name of the leading replica; empty after it has stepped down
	Instance uint64     // random number that identifies the leader's process
	PutCount uint64     `json:"Count"` // number of the leader's writes, for recognising a write whose answer was lost
	Epoch    wire.Epoch // minimum epoch of the leader's announcements
	// FileListPieces contains the hashes of the pieces of the encoded file list; empty before the first commit.
	FileListPieces []PieceHash `json:"Files"`
}

func (h *ClusterState) encode() ([]byte, error) {
	b, err := json.Marshal(h)
	if err == nil && len(b) > MaxValue {
		err = fmt.Errorf("the file list of the state folder is too long for the state store: %d pieces",
			len(h.FileListPieces))
	}
	return b, err
}

func decodeClusterState(value []byte) (*ClusterState, error) {
	h := &ClusterState{}
	if err := json.Unmarshal(value, h); err != nil {
		return nil, fmt.Errorf("invalid value of key %q in the state store: %w", headKey, err)
	}
	return h, nil
}

// replicatedFile is a file of the replicated folder.
type replicatedFile struct {
	Name string // path of the file in the folder, with slashes
	Size int64
	// Data is the content of a small file. A larger file is stored as pieces of pieceSize bytes; the last piece may be
	// shorter.
	Data   []byte      `json:",omitempty"`
	Pieces []PieceHash `json:",omitempty"`
}

// Size limits in bytes: pieceSize is the length of a piece, and inlineSize the maximum size of a file without pieces.
const (
	pieceSize  = MaxValue
	inlineSize = 4 << 10
)

// splitIntoPieces splits content into pieces and returns them in order with their hashes.
func splitIntoPieces(content []byte) (sums []PieceHash, pieces [][]byte) {
	for len(content) > 0 {
		p := content[:min(pieceSize, len(content))]
		content = content[len(p):]
		sums, pieces = append(sums, sha256.Sum256(p)), append(pieces, p)
	}
	return sums, pieces
}

// verifyPiece returns an error if a piece does not match its hash.
func verifyPiece(s PieceHash, piece []byte) error {
	if sha256.Sum256(piece) != s {
		return fmt.Errorf("piece %x in the state store is damaged: its content does not match its hash", s[:8])
	}
	return nil
}

func decodeFileList(list []byte) (files []replicatedFile, err error) {
	if err := json.Unmarshal(list, &files); err != nil {
		return nil, fmt.Errorf("invalid file list in the state store: %w", err)
	}
	return files, nil
}

// allPieceHashes returns the hashes of all pieces to which a file list refers, and of the pieces of the list itself.
func allPieceHashes(files []replicatedFile, list []PieceHash) []PieceHash {
	all := slices.Clone(list)
	for _, f := range files {
		all = append(all, f.Pieces...)
	}
	return all
}

// pieceHashFromKey parses the key of a piece in the store.
func pieceHashFromKey(key string) (s PieceHash, is bool) {
	name, is := strings.CutPrefix(key, piecePrefix)
	return s, is && s.UnmarshalText([]byte(name)) == nil
}
