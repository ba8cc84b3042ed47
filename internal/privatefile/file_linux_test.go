package privatefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// A program that opens the path finds the former file or the new one at any time: the name is never missing, and its
// file is never being written.
func TestWriteInOneStep(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if _, err := syscall.InotifyAddWatch(fd, dir,
		syscall.IN_CREATE|syscall.IN_DELETE|syscall.IN_MODIFY|syscall.IN_MOVE); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("secret")); err != nil {
		t.Fatal(err)
	}
	events := make([]byte, 64<<10)
	n, err := syscall.Read(fd, events)
	if err != nil {
		t.Fatal(err)
	}
	var masks []uint32
	for events = events[:n]; len(events) > 0; {
		mask, length := binary.NativeEndian.Uint32(events[4:]), binary.NativeEndian.Uint32(events[12:])
		name := events[syscall.SizeofInotifyEvent : syscall.SizeofInotifyEvent+length]
		if string(bytes.TrimRight(name, "\x00")) == "file" {
			masks = append(masks, mask)
		}
		events = events[syscall.SizeofInotifyEvent+length:]
	}
	if !slices.Equal(masks, []uint32{syscall.IN_MOVED_TO}) {
		t.Errorf("the name had the events %#x, want one rename", masks)
	}
}

// A pipe is refused, and not waited for, before and by Write.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); !errors.Is(err, errNotRegular) {
		t.Errorf("Check: %v", err)
	}
	if err := Write(path, nil); !errors.Is(err, errNotRegular) {
		t.Errorf("Write: %v", err)
	}
}
