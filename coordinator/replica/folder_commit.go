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

// restoreFolder has the folder hold what the head names.
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

// removeOrphanPieces removes pieces that nobody names: a leader before this one has ended before it could.
func (l *Leadership) removeOrphanPieces() {
	ctx, cancel := l.replica.cfg.Runtime.WithDeadline(l.ctx, l.replica.now().Add(10*storeCallTimeout))
	defer cancel()
	keys, err := l.replica.cfg.Store.Keys(ctx)
	if err != nil {
		return // the next leader sweeps
	}
	var gone []PieceHash
	for _, key := range keys {
		if s, is := pieceHashFromKey(key); is {
			gone = append(gone, s)
		}
	}
	l.removePieces(gone)
}

// Commit makes the folder count as it is after write, and returns when it does: whoever leads next goes on from there.
// While write writes, nothing else is committed, so that what it writes never counts without what it has found in the
// folder. epoch is that of the announcements that follow; 0 = as before. The error is write's, that of ctx, that the
// folder cannot be read, or wraps ErrLost: then it may count, or not.
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

// Prepare puts what a commit would have to put now, so that it has less to do when somebody waits for it. What fails is
// left to the commit.
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

// missingPieceCollector returns what collects pieces that are still to be put.
func (l *Leadership) missingPieceCollector(fresh map[PieceHash][]byte) func(PieceHash, []byte) {
	return func(s PieceHash, piece []byte) {
		if !l.referencedPieces[s] && !l.preparedPieces[s] {
			fresh[s] = piece
		}
	}
}

// commitFolder is Commit; without must it does nothing where nothing has changed.
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

// remove removes those pieces that the head does not name. Some may stay: the next leader sweeps.
func (l *Leadership) removePieces(gone []PieceHash) {
	slices.SortFunc(gone, comparePieceHashes)
	for _, s := range gone {
		if l.folderLock.lock(l.ctx, l.replica.cfg.Runtime) != nil { // a commit may come between, and may name it again
			return
		}
		if !l.referencedPieces[s] && !l.preparedPieces[s] && l.endedError() == nil {
			_ = l.replica.removeFromStore(l.ctx, s.storeKey())
		}
		l.folderLock.unlock()
	}
}

// putters is how many pieces are put at once.
const putters = 8

// putPieces puts pieces, and reads each back: what the head names is there.
func (l *Leadership) putPieces(ctx context.Context, fresh map[PieceHash][]byte) error {
	var mu sync.Mutex // of the next three
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

// putPiece puts a piece, until it can be read or the lead is over.
func (l *Leadership) putPiece(ctx context.Context, s PieceHash, piece []byte) error {
	return l.retryStoreOperation(ctx, "keep the state folder", func() error {
		_, err := l.replica.putInStore(ctx, s.storeKey(), piece, 0)
		if err != nil && !errors.Is(err, ErrConflict) { // then it is there
			return err
		}
		is, _, err := l.replica.getFromStore(ctx, s.storeKey())
		if err != nil {
			return err
		}
		return verifyPiece(s, is)
	})
}

// fetchPiece returns a piece, as soon as it can be read.
func (l *Leadership) fetchPiece(ctx context.Context, s PieceHash) (piece []byte, err error) {
	err = l.retryStoreOperation(ctx, "read the state folder", func() (err error) {
		if piece, _, err = l.replica.getFromStore(ctx, s.storeKey()); err == nil {
			err = verifyPiece(s, piece)
		}
		return err
	})
	return piece, err
}
