package powerloss

import (
	"context"
	"maps"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node is a file of a disk, for FUSE.
type node struct {
	fs.Inode
	disk *Disk
	file *file
}

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
)

// child returns the inode of a file in this folder.
func (n *node) child(ctx context.Context, f *file) *fs.Inode {
	return n.NewInode(ctx, &node{disk: n.disk, file: f}, fs.StableAttr{Mode: f.mode(), Ino: f.id})
}

// mode returns whether it is a file or a folder, as a mode has it.
func (f *file) mode() uint32 {
	if f.folder {
		return fuse.S_IFDIR
	}
	return fuse.S_IFREG
}

// attributes writes the attributes of a file. The caller holds the lock.
func (f *file) attributes(out *fuse.Attr) {
	out.Ino, out.Size, out.Mode, out.Nlink = f.id, uint64(len(f.data)), f.mode()|0o700, 1
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (found *fs.Inode, errno syscall.Errno) {
	errno = n.disk.read(func() syscall.Errno {
		f := n.file.names[name]
		if f == nil {
			return syscall.ENOENT
		}
		f.attributes(&out.Attr)
		found = n.child(ctx, f)
		return 0
	})
	return found, errno
}

func (n *node) Readdir(context.Context) (stream fs.DirStream, errno syscall.Errno) {
	errno = n.disk.read(func() syscall.Errno {
		var all []fuse.DirEntry
		for _, name := range slices.Sorted(maps.Keys(n.file.names)) {
			f := n.file.names[name]
			all = append(all, fuse.DirEntry{Name: name, Ino: f.id, Mode: f.mode()})
		}
		stream = fs.NewListDirStream(all)
		return 0
	})
	return stream, errno
}

func (n *node) make(ctx context.Context, name string, folder bool,
	out *fuse.EntryOut) (made *fs.Inode, errno syscall.Errno) {
	errno = n.disk.change(func() syscall.Errno {
		f := n.disk.newFile(folder)
		n.file.names[name] = f
		f.attributes(&out.Attr)
		made = n.child(ctx, f)
		return 0
	})
	return made, errno
}

func (n *node) Create(ctx context.Context, name string, _, _ uint32,
	out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	made, errno := n.make(ctx, name, false, out)
	return made, nil, 0, errno
}

func (n *node) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.make(ctx, name, true, out)
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.disk.change(func() syscall.Errno {
		delete(n.file.names, name)
		return 0
	})
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno { return n.Unlink(ctx, name) }

func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, newName string,
	flags uint32) syscall.Errno {
	if flags != 0 {
		return syscall.ENOTSUP
	}
	return n.disk.change(func() syscall.Errno {
		parent.(*node).file.names[newName] = n.file.names[name]
		delete(n.file.names, name)
		return 0
	})
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return n.disk.read(func() syscall.Errno {
		n.file.attributes(&out.Attr)
		return 0
	})
}

func (n *node) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	size, ok := in.GetSize()
	if !ok {
		return n.disk.read(func() syscall.Errno {
			n.file.attributes(&out.Attr)
			return 0
		})
	}
	return n.disk.change(func() syscall.Errno {
		n.file.resize(int(size))
		n.file.attributes(&out.Attr)
		return 0
	})
}

// resize cuts a file off, or appends zeros. The durable content may share no bytes with it.
func (f *file) resize(size int) {
	data := make([]byte, size)
	copy(data, f.data)
	f.data = data
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if flags&syscall.O_TRUNC == 0 {
		return nil, 0, n.disk.read(func() syscall.Errno { return 0 })
	}
	return nil, 0, n.disk.change(func() syscall.Errno {
		n.file.resize(0)
		return 0
	})
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, into []byte,
	at int64) (result fuse.ReadResult, errno syscall.Errno) {
	errno = n.disk.read(func() syscall.Errno {
		from := min(int(at), len(n.file.data))
		result = fuse.ReadResultData(slices.Clone(n.file.data[from:min(from+len(into), len(n.file.data))]))
		return 0
	})
	return result, errno
}

func (n *node) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (written uint32, errno syscall.Errno) {
	errno = n.disk.change(func() syscall.Errno {
		if end := int(at) + len(data); end > len(n.file.data) {
			n.file.resize(end)
		}
		copy(n.file.data[at:], data)
		written = uint32(len(data))
		return 0
	})
	return written, errno
}

// Fsync makes the content of a file, or the names of a folder, durable.
func (n *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return n.disk.change(func() syscall.Errno {
		n.file.durable, n.file.synced = slices.Clone(n.file.data), maps.Clone(n.file.names)
		return 0
	})
}
