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

// take has the folder hold what the head names.
func (l *Lead) take(ctx context.Context) error {
	l.listed = l.head.Files
	var list []byte
	for _, s := range l.listed {
		piece, err := l.fetch(ctx, s)
		if err != nil {
			return err
		}
		list = append(list, piece...)
	}
	files, err := decodeFiles(list)
	if err != nil {
		return err
	}
	for _, s := range pieces(files, l.listed) {
		l.kept[s] = true
	}
	if err := l.r.cfg.Folder.make(ctx, files, l.r.now(), l.fetch); err != nil {
		return err
	}
	l.r.cfg.Runtime.Go(l.sweep)
	return nil
}

// sweep removes pieces that nobody names: a leader before this one has ended before it could.
func (l *Lead) sweep() {
	ctx, cancel := l.r.cfg.Runtime.WithDeadline(l.ctx, l.r.now().Add(10*callWithin))
	defer cancel()
	keys, err := l.r.cfg.Store.Keys(ctx)
	if err != nil {
		return // the next leader sweeps
	}
	var gone []Sum
	for _, key := range keys {
		if s, is := sumOf(key); is {
			gone = append(gone, s)
		}
	}
	l.remove(gone)
}

// Commit makes the folder count as it is after write, and returns when it does: whoever leads next goes on from there.
// While write writes, nothing else is committed, so that what it writes never counts without what it has found in the
// folder. epoch is that of the announcements that follow; 0 = as before. The error is write's, that of ctx, that the
// folder cannot be read, or wraps ErrLost: then it may count, or not.
func (l *Lead) Commit(ctx context.Context, epoch wire.Epoch, write func() error) error {
	if err := l.files.enter(ctx, l.r.cfg.Runtime); err != nil {
		return err
	}
	defer l.files.leave()
	if err := write(); err != nil {
		return err
	}
	return l.commit(ctx, epoch, true)
}

// Prepare puts what a commit would have to put now, so that it has less to do when somebody waits for it. What fails is
// left to the commit.
func (l *Lead) Prepare(ctx context.Context) {
	if l.files.enter(ctx, l.r.cfg.Runtime) != nil {
		return
	}
	defer l.files.leave()
	fresh := map[Sum][]byte{}
	_, err := l.r.cfg.Folder.look(l.r.now(), l.collect(fresh))
	if err == nil && l.putAll(ctx, fresh) == nil {
		for s := range fresh {
			l.ready[s] = true
		}
	}
}

// collect returns what collects pieces that are still to be put.
func (l *Lead) collect(fresh map[Sum][]byte) func(Sum, []byte) {
	return func(s Sum, piece []byte) {
		if !l.kept[s] && !l.ready[s] {
			fresh[s] = piece
		}
	}
}

// commit is Commit; without must it does nothing where nothing has changed.
func (l *Lead) commit(ctx context.Context, epoch wire.Epoch, must bool) error {
	fresh := map[Sum][]byte{}
	give := l.collect(fresh)
	files, err := l.r.cfg.Folder.look(l.r.now(), give)
	if err != nil {
		return err
	}
	list, err := json.Marshal(files)
	if err != nil {
		return err
	}
	sums, parts := cut(list)
	if !must && slices.Equal(sums, l.listed) {
		return nil
	}
	for i, s := range sums {
		give(s, parts[i])
	}
	if err := l.putAll(ctx, fresh); err != nil {
		return err
	}
	if err := l.replace(ctx, func(h *Head) { h.Files, h.Epoch = sums, max(h.Epoch, epoch) }); err != nil {
		return err
	}
	before := l.kept
	maps.Copy(before, l.ready)
	l.kept, l.ready, l.listed = map[Sum]bool{}, map[Sum]bool{}, sums
	for _, s := range pieces(files, sums) {
		l.kept[s] = true
		delete(before, s)
	}
	var gone []Sum
	for s := range before {
		gone = append(gone, s)
	}
	if len(gone) > 0 {
		l.r.cfg.Runtime.Go(func() { l.remove(gone) })
	}
	return nil
}

func compareSums(a, b Sum) int { return slices.Compare(a[:], b[:]) }

// remove removes those pieces that the head does not name. Some may stay: the next leader sweeps.
func (l *Lead) remove(gone []Sum) {
	slices.SortFunc(gone, compareSums)
	for _, s := range gone {
		if l.files.enter(l.ctx, l.r.cfg.Runtime) != nil { // a commit may come between, and may name it again
			return
		}
		if !l.kept[s] && !l.ready[s] && l.over() == nil {
			_ = l.r.remove(l.ctx, s.key())
		}
		l.files.leave()
	}
}

// putters is how many pieces are put at once.
const putters = 8

// putAll puts pieces, and reads each back: what the head names is there.
func (l *Lead) putAll(ctx context.Context, fresh map[Sum][]byte) error {
	var mu sync.Mutex // of the next three
	var queue []Sum
	var failed []error
	working := min(putters, len(fresh))
	for s := range fresh {
		queue = append(queue, s)
	}
	slices.SortFunc(queue, compareSums)
	next := func(err error) (s Sum, more bool) {
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
	done := l.r.cfg.Runtime.NewWaiter()
	for range working {
		l.r.cfg.Runtime.Go(func() {
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
		done.Wait(context.Background(), l.r.now().Add(lookEvery), nil)
	}
}

// putPiece puts a piece, until it can be read or the lead is over.
func (l *Lead) putPiece(ctx context.Context, s Sum, piece []byte) error {
	return l.persist(ctx, "keep the state folder", func() error {
		_, err := l.r.put(ctx, s.key(), piece, 0)
		if err != nil && !errors.Is(err, ErrConflict) { // then it is there
			return err
		}
		is, _, err := l.r.get(ctx, s.key())
		if err != nil {
			return err
		}
		return sound(s, is)
	})
}

// fetch returns a piece, as soon as it can be read.
func (l *Lead) fetch(ctx context.Context, s Sum) (piece []byte, err error) {
	err = l.persist(ctx, "read the state folder", func() (err error) {
		if piece, _, err = l.r.get(ctx, s.key()); err == nil {
			err = sound(s, piece)
		}
		return err
	})
	return piece, err
}
