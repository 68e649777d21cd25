// Package powercut has a file system in memory that can lose power: it forgets what was not synced. The real programs
// run on it, and their promises are held against what is left.
//
// The content of a file is durable once the file was synced; its name, or that the name is gone, once its folder was
// synced.
package powercut

import (
	"context"
	"slices"
	"sync"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a file system that is mounted on a folder. It may be cut and mounted again.
type Disk struct {
	folder string
	synced func(name string, content []byte)
	server *fuse.Server

	mu   sync.Mutex // guards all nodes
	root *node
}

// node is a file or a folder.
type node struct {
	fs.Inode
	disk *Disk
	mode uint32 // with its type

	data    []byte           // of a file
	durable []byte           // what a sync of the file has left
	names   map[string]*node // of a folder: what a sync of it has left; the present ones are the Inode's children
}

// Mount mounts an empty disk. synced hears of each sync of a file, with its name in its folder and what it holds; it
// must not touch the disk.
func Mount(folder string, synced func(name string, content []byte)) (*Disk, error) {
	d := &Disk{folder: folder, synced: synced}
	d.root = &node{disk: d, mode: fuse.S_IFDIR | 0o700}
	return d, d.mount()
}

func (d *Disk) mount() (err error) {
	d.server, err = fs.Mount(d.folder, d.root, &fs.Options{MountOptions: fuse.MountOptions{
		DirectMount: true, // as root; else fusermount3 does it
		FsName:      "powercut", Name: "powercut",
	}})
	return err
}

// Unmount ends the file system. Nobody may have a file of it open.
func (d *Disk) Unmount() error { return d.server.Unmount() }

// Cut takes the power: what was not synced is gone. Nobody may have a file of it open.
func (d *Disk) Cut() error {
	if err := d.Unmount(); err != nil {
		return err
	}
	d.server.Wait()
	d.root = d.root.left(map[*node]*node{})
	return d.mount()
}

// left returns what is durable of a node and all below it, by what is made of them already.
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

// OnAdd makes the folders and files that were left.
func (n *node) OnAdd(ctx context.Context) {
	for name, child := range n.names {
		n.AddChild(name, n.NewPersistentInode(ctx, child, fs.StableAttr{Mode: child.mode & syscall.S_IFMT}), true)
	}
}

// child makes a file or folder below this one.
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

// Create makes a file.
func (n *node) Create(ctx context.Context, _ string, _, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle,
	uint32, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.child(ctx, mode&0o777|fuse.S_IFREG, out), nil, fuse.FOPEN_DIRECT_IO, 0
}

// Mkdir makes a folder.
func (n *node) Mkdir(ctx context.Context, _ string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.child(ctx, mode&0o777|fuse.S_IFDIR, out), 0
}

// Mknod makes a socket, or whatever is asked for.
func (n *node) Mknod(ctx context.Context, _ string, mode, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	return n.child(ctx, mode, out), 0
}

// Unlink removes a name: the Inode does.
func (n *node) Unlink(context.Context, string) syscall.Errno { return 0 }

// Rmdir removes a folder: the Inode does, if it is empty.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	if c := n.GetChild(name); c != nil && len(c.Children()) > 0 {
		return syscall.ENOTEMPTY
	}
	return 0
}

// Rename moves a name: the Inode does.
func (n *node) Rename(context.Context, string, fs.InodeEmbedder, string, uint32) syscall.Errno {
	return 0
}

// Getattr tells what is known of a file.
func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	n.attr(&out.Attr)
	return 0
}

// Setattr changes a file's length or permissions.
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

// Open opens a file. The kernel keeps nothing of it, so that reads see what the disk has.
func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read reads a file.
func (n *node) Read(_ context.Context, _ fs.FileHandle, dst []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	from := min(at, int64(len(n.data)))
	return fuse.ReadResultData(dst[:copy(dst, n.data[from:])]), 0
}

// Write writes to a file. Nothing of it is durable yet.
func (n *node) Write(_ context.Context, _ fs.FileHandle, p []byte, at int64) (uint32, syscall.Errno) {
	n.disk.mu.Lock()
	defer n.disk.mu.Unlock()
	if end := int(at) + len(p); end > len(n.data) {
		n.resize(end)
	}
	return uint32(copy(n.data[at:], p)), 0
}

// Fsync makes a file's content durable, or a folder's names.
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

// Statfs tells of much room.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.Blocks, out.Bfree, out.Bavail, out.NameLen = 4096, 4096, 1<<20, 1<<20, 1<<20, 255
	return 0
}
