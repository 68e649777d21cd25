// Package powercut is an in-memory file system that simulates a power failure by discarding unsynced data. Tests run
// the compiled programs on this file system and check the remaining data.
//
// A file's content is durable after an fsync of the file. A created, renamed or removed name is durable after an fsync
// of the folder.
package powercut

import (
	"context"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is an in-memory file system that is mounted on a folder. Cut simulates a power failure and mounts the file
// system again.
type Disk struct {
	folder string
	synced func(name string, content []byte)
	server *fuse.Server

	mu   sync.Mutex // protects all nodes
	root *node
}

type node struct {
	fs.Inode
	disk *Disk
	mode uint32 // permissions and file type

	data    []byte           // current content of the file
	durable []byte           // content of the file at its last fsync
	names   map[string]*node // entries of the folder at its last fsync; the embedded Inode holds the current entries
}

// Mount mounts an empty file system on folder. It calls synced after each fsync of a file, with the file's base name
// and content. The callback must not access the file system.
func Mount(folder string, synced func(name string, content []byte)) (*Disk, error) {
	d := &Disk{folder: folder, synced: synced}
	d.root = &node{disk: d, mode: fuse.S_IFDIR | 0o700}
	return d, d.mount()
}

func (d *Disk) mount() (err error) {
	d.server, err = fs.Mount(d.folder, d.root, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMount: true, // Mount directly if the test runs as root; otherwise the library calls fusermount3.
		FsName:      "powercut", Name: "powercut",
	}})
	return err
}

// Unmount unmounts the file system. The caller must close all its files first.
func (d *Disk) Unmount() error { return d.server.Unmount() }

// Cut simulates a power failure: it discards all data that was not synced. The caller must close all files first.
func (d *Disk) Cut() error {
	if err := d.Unmount(); err != nil {
		return err
	}
	d.server.Wait()
	d.root = d.root.left(map[*node]*node{})
	return d.mount()
}

// left returns a copy of node n and the nodes below n. The copy contains only the durable state. made contains the
// copies that have already been made, so that a file with several names is copied only once.
func (n *node) left(made map[*node]*node) *node {
	if made[n] == nil {
		m := &node{disk: n.disk, mode: n.mode, data: slices.Clone(n.durable), durable: n.durable}
		made[n] = m
		m.names = map[string]*node{}
		for name, child := range n.names {
			m.names[name] = child.left(made)
		}
	}
	return made[n]
}

// OnAdd adds the entries that survived the power failure to the mounted folder.
func (n *node) OnAdd(ctx context.Context) {
	for name, child := range n.names {
		n.AddChild(name, n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: child.mode & syscall.S_IFMT}), true)
	}
}

// child creates a file or folder node below node n.
func (n *node) child(ctx context.Context, mode uint32, out *fuse.EntryOut) *fs.Inode {
	c := &node{disk: n.disk, mode: mode}
	i := n.NewPersistentInode(ctx, c, fs.StableAttr{Mode: mode & syscall.S_IFMT})
	c.attr(&out.Attr)
	return i
}

func (n *node) attr(out *fuse.Attr) {
	out.Mode, out.Size, out.Nlink = n.mode, uint64(len(n.data)), 1
	out.Blocks, out.Blksize = (out.Size+511)/512, 4096
}

// Create implements fs.NodeCreater: it creates a regular file.
func (n *node) Create(ctx context.Context, _ string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle,
	uint32, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.child(ctx, mode&0o777|fuse.S_IFREG, out), nil, fuse.FOPEN_DIRECT_IO, 0
}

// Mkdir implements fs.NodeMkdirer: it creates a folder.
func (n *node) Mkdir(ctx context.Context, _ string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.child(ctx, mode&0o777|fuse.S_IFDIR, out), 0
}

// Mknod implements fs.NodeMknoder: it creates a socket or another special file.
func (n *node) Mknod(ctx context.Context, _ string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.child(ctx, mode, out), 0
}

// Unlink implements fs.NodeUnlinker. The embedded Inode removes the name from the folder.
func (n *node) Unlink(context.Context, string) syscall.Errno { return 0 }

// Rmdir implements fs.NodeRmdirer. It returns an error if the folder is not empty; otherwise the embedded Inode removes
// the folder.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	if c := n.GetChild(name); c != nil && len(c.Children()) > 0 {
		return syscall.ENOTEMPTY
	}
	return 0
}

// Rename implements fs.NodeRenamer. The embedded Inode moves the entry.
func (n *node) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	return 0
}

// Getattr implements fs.NodeGetattrer: it returns the attributes of a file or folder.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.attr(&out.Attr)
	return 0
}

// Setattr implements fs.NodeSetattrer: it changes the length or the permissions of a file.
func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if size, ok := in.GetSize(); ok {
		n.resize(int(size))
	}
	if mode, ok := in.GetMode(); ok {
		n.mode = n.mode&syscall.S_IFMT | mode&0o7777
	}
	n.attr(&out.Attr)
	return 0
}

func (n *node) resize(size int) {
	if size <= len(n.data) {
		n.data = n.data[:size]
	} else {
		n.data = append(n.data, make([]byte, size-len(n.data))...)
	}
}

// Open implements fs.NodeOpener. It disables the kernel's page cache, so that every read returns the content in this
// file system.
func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader: it reads from the current content of a file.
func (n *node) Read(_ context.Context, _ fs.FileHandle, dst []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	from := min(at, int64(len(n.data)))
	return fuse.ReadResultData(dst[:copy(dst, n.data[from:])]), 0
}

// Write implements fs.NodeWriter. The written data is not durable until the next fsync.
func (n *node) Write(_ context.Context, _ fs.FileHandle, p []byte, at int64) (uint32, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if end := int(at) + len(p); end > len(n.data) {
		n.resize(end)
	}
	return uint32(copy(n.data[at:], p)), 0
}

// Fsync implements fs.NodeFsyncer. It makes the content of a file, or the entries of a folder, durable.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if n.mode&syscall.S_IFMT != syscall.S_IFDIR {
		n.durable = slices.Clone(n.data)
		name, _ := n.Parent()
		n.disk.synced(name, n.durable)
		return 0
	}
	n.names = map[string]*node{}
	for name, i := range n.Children() {
		n.names[name] = i.Operations().(*node)
	}
	return 0
}

// Statfs implements fs.NodeStatfser. Statfs always reports plenty of free space.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.Blocks, out.Bfree, out.Bavail, out.NameLen = 4096, 4096, 1<<20, 1<<20, 1<<20, 255
	return 0
}
