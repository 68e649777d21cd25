package world

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fedmesh/fedmesh/store"
)

// sector is the size of a sector in bytes. A power cut keeps or loses unsynced data sector by sector.
const sector = 512

// disk simulates the disk of a party. Its content survives restarts of the party's process.
type disk struct {
	name string // name of the machine that the disk belongs to
	w    *World
	root *folder

	full   bool          // true if writes fail because the disk is full
	slow   time.Duration // maximum duration of a sync; 0 means some milliseconds
	cutAt  int           // number of the disk operation at which the process is killed; 0 means never
	cut    func()
	ops    int
	forget func(op, path string) bool // deliberate bug: reports whether the disk skips this operation
	isLate func(path string) bool     // deliberate bug: reports whether the disk delays this sync until the next sync
	late   *inode                     // file whose sync is delayed, for the deliberate bug isLate
	wrote  func(path string)          // callback for each file that is renamed, and for each slot file that is synced
}

// folder contains the names in a folder, both the present names and the names at the last sync.
type folder struct {
	names, durable map[string]any // maps a name to a *folder or an *inode
	changes        []change       // changes since the last sync, in order
}

// change is a change of the names in a folder: it sets a name, removes a name, or does both.
type change struct {
	set, remove string
	node        any
}

// inode contains the content of a file, both the present content and the content at the last sync.
type inode struct {
	data, durableData []byte
	shared            bool // true if data and durableData share memory; a write then copies the data first
}

func newFolder() *folder { return &folder{names: map[string]any{}, durable: map[string]any{}} }

func (f *folder) apply(c change) {
	f.names = c.to(f.names)
	f.changes = append(f.changes, c)
}

func (c change) to(names map[string]any) map[string]any {
	if c.remove != "" {
		delete(names, c.remove)
	}
	if c.set != "" {
		names[c.set] = c.node
	}
	return names
}

func (f *folder) sync() {
	if len(f.changes) > 0 {
		f.durable, f.changes = maps.Clone(f.names), nil
	}
}

// powerCut discards data that was not synced. Each folder keeps the names of its last sync and a random prefix of later
// changes. Each file keeps its synced content and a random set of later sectors.
func (d *disk) powerCut() { d.cutFolder(d.root) }

func (d *disk) cutFolder(f *folder) {
	names := maps.Clone(f.durable)
	for _, c := range f.changes[:d.w.rng.IntN(len(f.changes)+1)] {
		names = c.to(names)
	}
	f.names, f.durable, f.changes = names, maps.Clone(names), nil
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch n := names[name].(type) {
		case *folder:
			d.cutFolder(n)
		case *inode:
			d.cutFile(n)
		}
	}
}

func (d *disk) cutFile(n *inode) {
	if n.shared {
		return
	}
	low, high := min(len(n.data), len(n.durableData)), max(len(n.data), len(n.durableData))
	size := low
	if high > low {
		size += d.w.rng.IntN(high - low + 1)
	}
	after := make([]byte, size)
	for at := 0; at < size; at += sector {
		from := n.durableData
		if d.w.rng.IntN(2) == 0 {
			from = n.data
		}
		if at < len(from) {
			copy(after[at:min(at+sector, size)], from[at:])
		}
	}
	n.data, n.durableData, n.shared = after, after, true
}

// durableFile returns the content that a file certainly has after a power cut. durableFile returns nil if the file may
// be lost.
func (d *disk) durableFile(name string) []byte {
	f := d.root
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		next, ok := f.durable[part].(*folder)
		if !ok {
			return nil
		}
		f = next
	}
	n, ok := f.durable[parts[len(parts)-1]].(*inode)
	if !ok {
		return nil
	}
	return n.durableData
}

// handle gives a process access to its disk. handle becomes unusable when the process is killed.
type handle struct {
	*disk
	life *processLife
}

var _ store.FS = handle{}

// op counts an operation that modifies the disk, and lets the job use the given time. It returns false if a deliberate
// bug makes the disk skip the operation.
func (h handle) op(what, name string, took time.Duration) bool {
	h.life.alive()
	if h.ops++; h.ops == h.cutAt {
		h.cutAt = 0
		h.cut()
		panic(errKilled)
	}
	h.w.spend(took)
	return h.forget == nil || !h.forget(what, name)
}

// syncTime returns the duration of a sync.
func (h handle) syncTime() time.Duration {
	if h.w.plan.SyncTime > 0 {
		return h.w.plan.SyncTime
	}
	if h.slow > 0 {
		return time.Duration(h.w.rng.Int64N(int64(h.slow)))
	}
	return time.Duration(h.w.rng.Int64N(int64(5 * time.Millisecond)))
}

func split(name string) []string { return strings.Split(strings.Trim(name, "/"), "/") }

// at returns the folder that contains the file with the given path, and the last element of the path.
func (h handle) at(name string) (*folder, string, error) {
	f, parts := h.root, split(name)
	for _, part := range parts[:len(parts)-1] {
		next, ok := f.names[part].(*folder)
		if !ok {
			return nil, "", &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		f = next
	}
	return f, parts[len(parts)-1], nil
}

func (h handle) folder(name string) (*folder, error) {
	if f := split(name); len(f) == 1 && f[0] == "" {
		return h.root, nil
	}
	f, last, err := h.at(name)
	if err != nil {
		return nil, err
	}
	if found, ok := f.names[last].(*folder); ok {
		return found, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// OpenFile implements store.FS.
func (h handle) OpenFile(name string, flag int, _ fs.FileMode) (store.File, error) {
	h.life.alive()
	f, last, err := h.at(name)
	if err != nil {
		return nil, err
	}
	n, found := f.names[last].(*inode)
	switch {
	case found && flag&os.O_EXCL != 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	case !found && flag&os.O_CREATE == 0:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case !found && h.full:
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.ENOSPC}
	case !found:
		h.op("create", name, 0)
		n = &inode{}
		f.apply(change{set: last, node: n})
	}
	return &file{h: h, name: name, inode: n}, nil
}

// Lstat implements store.FS.
func (h handle) Lstat(name string) (fs.FileInfo, error) {
	h.life.alive()
	f, last, err := h.at(name)
	if err != nil {
		return nil, err
	}
	node, ok := f.names[last]
	if !ok {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: fs.ErrNotExist}
	}
	return infoOf(last, node), nil
}

// ReadDir implements store.FS.
func (h handle) ReadDir(name string) ([]fs.DirEntry, error) {
	h.life.alive()
	f, err := h.folder(name)
	if err != nil {
		return nil, err
	}
	var all []fs.DirEntry
	for _, name := range slices.Sorted(maps.Keys(f.names)) {
		all = append(all, fs.FileInfoToDirEntry(infoOf(name, f.names[name])))
	}
	return all, nil
}

// Mkdir implements store.FS.
func (h handle) Mkdir(name string, _ fs.FileMode) error {
	h.life.alive()
	f, last, err := h.at(name)
	if err != nil {
		return err
	}
	if _, found := f.names[last]; found {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	if h.full {
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOSPC}
	}
	if h.op("mkdir", name, 0) {
		f.apply(change{set: last, node: newFolder()})
	}
	return nil
}

// Rename implements store.FS. Both names must be in one folder.
func (h handle) Rename(from, to string) error {
	h.life.alive()
	if path.Dir(from) != path.Dir(to) {
		panic("world: rename to another folder is not supported: " + from + " to " + to)
	}
	f, old, err := h.at(from)
	if err != nil {
		return err
	}
	node, ok := f.names[old]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	if h.op("rename", to, 0) {
		f.apply(change{remove: old, set: path.Base(to), node: node})
	}
	if h.wrote != nil {
		h.wrote(to)
	}
	return nil
}

// Remove implements store.FS.
func (h handle) Remove(name string) error {
	h.life.alive()
	f, last, err := h.at(name)
	if err != nil {
		return err
	}
	if _, ok := f.names[last]; !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if h.op("remove", name, 0) {
		f.apply(change{remove: last})
	}
	return nil
}

// RemoveAll implements store.FS. RemoveAll removes a folder in a single step. Therefore a power cut cannot leave only a
// part of a synced folder.
func (h handle) RemoveAll(name string) error {
	if err := h.Remove(name); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// SyncDir implements store.FS.
func (h handle) SyncDir(name string) error {
	h.life.alive()
	f, err := h.folder(name)
	if err == nil && h.op("sync folder", name, h.syncTime()) {
		f.sync()
	}
	return err
}

// info implements fs.FileInfo for a file or folder.
type info struct {
	name string
	size int64
	dir  bool
}

func infoOf(name string, node any) info {
	if n, ok := node.(*inode); ok {
		return info{name: name, size: int64(len(n.data))}
	}
	return info{name: name, dir: true}
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }

func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o700
	}
	return 0o600
}
