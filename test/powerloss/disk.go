package powerloss

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a file system in memory whose power can be lost. POSIX promises no more than this: the content of a file is
// durable once fsync of the file has returned, and a name once fsync of its folder has.
type Disk struct {
	Path string // where it is mounted

	server *fuse.Server // nil after Reboot

	mu     sync.Mutex
	root   *file
	serial uint64
	left   int  // changes until the power is lost
	lost   bool // the power: every request fails
}

// file is a file or a folder.
type file struct {
	id            uint64
	folder        bool
	data, durable []byte
	names, synced map[string]*file // of a folder
}

// Mount mounts an empty disk whose power is lost after so many changes, until the end of the test. It skips the test if
// the process may not mount one.
func Mount(t testing.TB, changes int) *Disk {
	t.Helper()
	d := &Disk{Path: t.TempDir(), left: changes}
	d.root = d.newFile(true)
	second := time.Second
	server, err := fs.Mount(d.Path, &node{disk: d, file: d.root}, &fs.Options{
		AttrTimeout: &second, EntryTimeout: &second,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "powerloss", DisableXAttrs: true},
	})
	if err != nil {
		t.Skipf("SKIPPED: losses of power are not tested, because this process may not mount a FUSE file system (%v): run it as root", err)
	}
	d.server = server
	t.Cleanup(func() {
		if err := d.unmount(); err != nil {
			t.Errorf("unmount %s: %v", d.Path, err)
		}
	})
	return d
}

func (d *Disk) newFile(folder bool) *file {
	d.serial++
	f := &file{id: d.serial, folder: folder}
	if folder {
		f.names, f.synced = map[string]*file{}, map[string]*file{}
	}
	return f
}

// change makes a change, unless the power is lost.
func (d *Disk) change(make func() syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left--; d.left < 0 {
		d.lost = true
	}
	if d.lost {
		return syscall.EIO
	}
	return make()
}

// read makes a request that changes nothing, unless the power is lost.
func (d *Disk) read(make func() syscall.Errno) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost {
		return syscall.EIO
	}
	return make()
}

// Lost reports whether the power is lost.
func (d *Disk) Lost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

func (d *Disk) unmount() error {
	if d.server == nil {
		return nil
	}
	err := d.server.Unmount()
	if err == nil {
		d.server = nil
	}
	return err
}

// Reboot puts a folder in the place of the disk, with what it has after the loss: all that is durable, and of the rest
// what random draws. No process uses the disk any more.
func (d *Disk) Reboot(random *rand.Rand) error {
	if err := d.unmount(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return restore(d.root, d.Path, random)
}

func restore(f *file, path string, random *rand.Rand) error {
	if !f.folder {
		return os.WriteFile(path, survivors(f, random), 0o600)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	all := maps.Clone(f.names)
	maps.Copy(all, f.synced)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		found := f.synced[name]
		if now := f.names[name]; now != found && random.IntN(2) == 0 {
			found = now
		}
		if found == nil {
			continue
		}
		if err := restore(found, filepath.Join(path, name), random); err != nil {
			return err
		}
	}
	return nil
}

// block is what a disk writes at a time.
const block = 512

// survivors returns the content of a file after the loss: each block is the durable or the written one.
func survivors(f *file, random *rand.Rand) []byte {
	if slices.Equal(f.data, f.durable) || random.IntN(3) == 0 {
		return f.durable
	}
	length := len(f.durable)
	if random.IntN(2) == 0 {
		length = len(f.data)
	}
	content := make([]byte, length) // what was not written is zero
	for at := 0; at < length; at += block {
		from := f.durable
		if random.IntN(2) == 0 {
			from = f.data
		}
		if at < len(from) {
			copy(content[at:min(at+block, length)], from[at:])
		}
	}
	return content
}
