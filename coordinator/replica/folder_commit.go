package replica

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/fedmesh/fedmesh/wire"
)

// restoreFolder replaces the contents of the folder with the state in the store.
func (l *Leadership) restoreFolder(ctx context.Context) error {
	l.fileListPieces = l.lastPutClusterState.FileListPieces
	var list []byte
	for _, s := range l.fileListPieces {
		piece, err := l.fetchPiece(ctx, s)
		if err != nil {
			return err
		}
		list = append(list, piece...)
	}
	files, err := decodeFileList(list)
	if err != nil {
		return err
	}
	for _, s := range allPieceHashes(files, l.fileListPieces) {
		l.referencedPieces[s] = true
	}
	if err := l.replica.cfg.Folder.restoreFiles(ctx, files, l.replica.now(), l.fetchPiece); err != nil {
		return err
	}
	l.replica.cfg.Runtime.Go(l.removeOrphanPieces)
	return nil
}

// removeOrphanPieces deletes pieces in the store to which the cluster state does not refer. An earlier leader may have
// ended before deleting them.
func (l *Leadership) removeOrphanPieces() {
	ctx, cancel := l.replica.cfg.Runtime.WithDeadline(l.ctx, l.replica.now().Add(10*storeCallTimeout))
	defer cancel()
	keys, err := l.replica.cfg.Store.Keys(ctx)
	if err != nil {
		return // the next leader removes the remaining pieces
	}
	var gone []PieceHash
	for _, key := range keys {
		if s, is := pieceHashFromKey(key); is {
			gone = append(gone, s)
		}
	}
	l.removePieces(gone)
}

// CommitFolderWrite calls write and then commits the folder, so that the next leader continues from this state. Other
// commits wait meanwhile, so that a partial write is never committed. epoch is the epoch of subsequent announcements; 0
// means unchanged.
//
// It returns the error of write, of ctx or of reading the folder, or an error that wraps ErrLost. After ErrLost it is
// unknown whether the commit succeeded.
func (l *Leadership) CommitFolderWrite(ctx context.Context, epoch wire.Epoch, write func() error) error {
	if err := l.folderLock.lock(ctx, l.replica.cfg.Runtime); err != nil {
		return err
	}
	defer l.folderLock.unlock()
	if err := write(); err != nil {
		return err
	}
	return l.commitFolder(ctx, epoch, true)
}

// PrepareFolderCommit uploads the pieces that the next commit needs, so that the commit is faster. It ignores errors,
// because the commit tries again.
func (l *Leadership) PrepareFolderCommit(ctx context.Context) {
	if l.folderLock.lock(ctx, l.replica.cfg.Runtime) != nil {
		return
	}
	defer l.folderLock.unlock()
	fresh := map[PieceHash][]byte{}
	_, err := l.replica.cfg.Folder.scanFiles(l.replica.now(), l.missingPieceCollector(fresh))
	if err == nil && l.putPieces(ctx, fresh) == nil {
		for s := range fresh {
			l.preparedPieces[s] = true
		}
	}
}

// missingPieceCollector returns a function that adds a piece to fresh if it is not in the store.
func (l *Leadership) missingPieceCollector(fresh map[PieceHash][]byte) func(PieceHash, []byte) {
	return func(s PieceHash, piece []byte) {
		if !l.referencedPieces[s] && !l.preparedPieces[s] {
			fresh[s] = piece
		}
	}
}

// commitFolder makes the content of the folder the state of the cluster. If must is false, it does nothing for an
// unchanged folder.
func (l *Leadership) commitFolder(ctx context.Context, epoch wire.Epoch, must bool) error {
	fresh := map[PieceHash][]byte{}
	give := l.missingPieceCollector(fresh)
	files, err := l.replica.cfg.Folder.scanFiles(l.replica.now(), give)
	if err != nil {
		return err
	}
	list, err := json.Marshal(files)
	if err != nil {
		return err
	}
	sums, parts := splitIntoPieces(list)
	if !must && slices.Equal(sums, l.fileListPieces) {
		return nil
	}
	for i, s := range sums {
		give(s, parts[i])
	}
	if err := l.putPieces(ctx, fresh); err != nil {
		return err
	}
	if err := l.replaceClusterState(ctx, func(h *ClusterState) {
		h.FileListPieces, h.Epoch = sums, max(h.Epoch,
			epoch)
	}); err != nil {
		return err
	}
	before := l.referencedPieces
	maps.Copy(before, l.preparedPieces)
	l.referencedPieces, l.preparedPieces, l.fileListPieces = map[PieceHash]bool{}, map[PieceHash]bool{}, sums
	for _, s := range allPieceHashes(files, sums) {
		l.referencedPieces[s] = true
		delete(before, s)
	}
	var gone []PieceHash
	for s := range before {
		gone = append(gone, s)
	}
	if len(gone) > 0 {
		l.replica.cfg.Runtime.Go(func() { l.removePieces(gone) })
	}
	return nil
}

func comparePieceHashes(a, b PieceHash) int { return slices.Compare(a[:], b[:]) }

// removePieces removes pieces without references from the store. If an error occurs, some pieces may remain; the next
// leader removes them.
func (l *Leadership) removePieces(gone []PieceHash) {
	slices.SortFunc(gone, comparePieceHashes)
	for _, s := range gone {
		if l.folderLock.lock(l.ctx, l.replica.cfg.Runtime) != nil { // a concurrent commit may refer to the piece again
			return
		}
		if !l.referencedPieces[s] && !l.preparedPieces[s] && l.endedError() == nil {
			_ = l.replica.removeFromStore(l.ctx, s.storeKey())
		}
		l.folderLock.unlock()
	}
}

// putters is the maximum number of pieces that are uploaded concurrently.
const putters = 8

// putPieces uploads pieces concurrently and reads each piece back, so that the cluster state refers only to stored
// pieces.
func (l *Leadership) putPieces(ctx context.Context, fresh map[PieceHash][]byte) error {
	var mu sync.Mutex // guards queue, failed and working
	var queue []PieceHash
	var failed []error
	working := min(putters, len(fresh))
	for s := range fresh {
		queue = append(queue, s)
	}
	slices.SortFunc(queue, comparePieceHashes)
	next := func(err error) (s PieceHash, more bool) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = append(failed, err)
		}
		if len(queue) == 0 || len(failed) > 0 {
			working--
			return s, false
		}
		s, queue = queue[0], queue[1:]
		return s, true
	}
	done := l.replica.cfg.Runtime.NewWaiter()
	for range working {
		l.replica.cfg.Runtime.Go(func() {
			for s, more := next(nil); more; s, more = next(l.putPiece(ctx, s, fresh[s])) {
			}
			done.Wake()
		})
	}
	for {
		mu.Lock()
		over := working == 0
		mu.Unlock()
		if over {
			return errors.Join(failed...)
		}
		done.Wait(context.Background(), l.replica.now().Add(lookEvery), nil)
	}
}

// putPiece uploads a piece and retries until it can be read back or the leadership ends.
func (l *Leadership) putPiece(ctx context.Context, s PieceHash, piece []byte) error {
	return l.retryStoreOperation(ctx, "write the state folder to the state store", func() error {
		_, err := l.replica.putInStore(ctx, s.storeKey(), piece, 0)
		if err != nil && !errors.Is(err, ErrConflict) { // ErrConflict means that the piece is already stored.
			return err
		}
		is, _, err := l.replica.getFromStore(ctx, s.storeKey())
		if err != nil {
			return err
		}
		return verifyPiece(s, is)
	})
}

// fetchPiece downloads a piece and retries until it succeeds or the leadership ends.
func (l *Leadership) fetchPiece(ctx context.Context, s PieceHash) (piece []byte, err error) {
	err = l.retryStoreOperation(ctx, "read the state folder from the state store", func() (err error) {
		if piece, _, err = l.replica.getFromStore(ctx, s.storeKey()); err == nil {
			err = verifyPiece(s, piece)
		}
		return err
	})
	return piece, err
}
