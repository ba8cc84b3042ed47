package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// soon is the time within which something ends that otherwise hangs for a minute.
const soon = 30 * time.Second

// disk is a file system of its own.
type disk struct{ path string }

func newDisk(t *testing.T, kilobytes int) disk {
	t.Helper()
	d := disk{t.TempDir()}
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", 0, fmt.Sprintf("size=%dk", kilobytes)); err != nil {
		t.Skipf("SKIPPED: what a full disk does is not tested, because this process may not mount one (%v): run it as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.path, 0); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill leaves no room on the disk.
func (d disk) fill(t *testing.T) {
	t.Helper()
	file, err := os.Create(filepath.Join(d.path, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := file.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func (d disk) makeRoom(t *testing.T) {
	t.Helper()
	if err := os.Remove(filepath.Join(d.path, "filler")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", syscall.MS_REMOUNT, "size=200m"); err != nil {
		t.Fatal(err)
	}
}

func (d disk) serve(t *testing.T) (p *process, kubeconfig string) {
	t.Helper()
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	return startProcess(t, "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig, "--data-dir", filepath.Join(d.path, "data")), kubeconfig
}

// exitSoon is exit for a process that must not take long.
func (p *process) exitSoon(t *testing.T) int {
	t.Helper()
	begin := time.Now()
	code := p.exit(t)
	if took := time.Since(begin); took > soon {
		t.Errorf("it ends after %v", took)
	}
	return code
}

// writeUntilEnd creates objects, once the process is ready, until it ends.
func writeUntilEnd(t *testing.T, p *process, kubeconfig string) {
	t.Helper()
	eventually(t, "the server ends", func() error {
		select {
		case err := <-p.ended:
			p.ended <- err
			return nil
		default:
		}
		if strings.Contains(p.stderr.String(), "keepwatch: ready") {
			clientOf(t, kubeconfig).CoreV1().ConfigMaps("default").Create(t.Context(), large(""), metav1.CreateOptions{})
		}
		return errors.New("it runs")
	})
}

// endsFull checks the end of a process whose disk is full, and that its data is good once there is room.
func (d disk) endsFull(t *testing.T, p *process) (kubeconfig string, again *process) {
	t.Helper()
	if code := p.exitSoon(t); code != 1 {
		t.Errorf("exit %d", code)
	}
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "keepwatch: ") || !strings.Contains(last, "no space left on device") {
		t.Errorf("at last it says %.500q", last)
	}
	if len(lines) > 20 {
		t.Errorf("it says %d lines, which begin with %.1000q", len(lines), p.stderr.String())
	}
	d.makeRoom(t)
	again, kubeconfig = d.serve(t)
	awaitLine(t, again, "keepwatch: ready")
	return kubeconfig, again
}

// A new folder on a disk that has room for some of what a start writes, which begins with a log of 62,500 KiB.
func TestServeStartsOnAFullDisk(t *testing.T) {
	for _, room := range []int{4, 20, 28, 32} {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			disk := newDisk(t, 62500+room)
			p, kubeconfig := disk.serve(t)
			writeUntilEnd(t, p, kubeconfig) // if the start has found room for all that it writes
			_, p = disk.endsFull(t, p)
			terminate(t, p)
		})
	}
}

// The disk gets full while the layers above etcd start. What they write may still fit; what comes then does not.
func TestServeDiskFillsAtTheStart(t *testing.T) {
	disk := newDisk(t, 80<<10)
	p, kubeconfig := disk.serve(t)
	eventually(t, "etcd starts", func() error {
		_, err := os.Stat(filepath.Join(disk.path, "data", "run", "etcd.sock"))
		return err
	})
	disk.fill(t)
	writeUntilEnd(t, p, kubeconfig)
	_, p = disk.endsFull(t, p)
	terminate(t, p)
}

// The disk gets full under writes: what was answered is there once there is room.
func TestServeDiskFillsWhileServing(t *testing.T) {
	disk := newDisk(t, 80<<10)
	p, kubeconfig := disk.serve(t)
	p.awaitReady(t)
	maps := clientOf(t, kubeconfig).CoreV1().ConfigMaps("default")
	disk.fill(t)
	written := map[string]bool{}
	eventually(t, "writes fail", func() error {
		o, err := maps.Create(t.Context(), large(""), metav1.CreateOptions{})
		if err != nil {
			return nil
		}
		written[o.Name] = true
		return fmt.Errorf("written %d", len(written))
	})
	kubeconfig, p = disk.endsFull(t, p)
	list, err := clientOf(t, kubeconfig).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		delete(written, o.Name)
	}
	if len(written) > 0 {
		t.Errorf("lost: %v", written)
	}
	terminate(t, p)
}
