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

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// exitTimeout bounds the end of a process that would otherwise hang for a minute.
const exitTimeout = 50 * time.Second

// disk is a file system of its own.
type disk struct{ path string }

func newDisk(t *testing.T, kilobytes int) disk {
	t.Helper()
	d := disk{t.TempDir()}
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", 0, fmt.Sprintf("size=%dk", kilobytes)); err != nil {
		t.Skipf("SKIPPED: full disks are not tested, because this process may not mount one (%v): run it as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.path, 0); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill writes a file until the disk is full.
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

func (d disk) freeSpace(t *testing.T) {
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
	return startProcess(t, "serve", "--controllers=false", "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig,
		"--data-dir", filepath.Join(d.path, "data")), kubeconfig
}

// exitInTime is exit with exitTimeout.
func (p *process) exitInTime(t *testing.T) int {
	t.Helper()
	begin := time.Now()
	code := p.exit(t)
	if took := time.Since(begin); took > exitTimeout {
		t.Errorf("the process ends after %v", took)
	}
	return code
}

// writeUntilEnd creates objects after the process is ready, until it ends.
func writeUntilEnd(t *testing.T, p *process, kubeconfig string) {
	t.Helper()
	await.NoError(t, "the server ends", func() error {
		select {
		case <-p.ended:
			return nil
		default:
		}
		if strings.Contains(p.stderr.String(), "keepwatch: ready") {
			clientOf(t, kubeconfig).CoreV1().ConfigMaps("default").Create(t.Context(), large(""), metav1.CreateOptions{})
		}
		return errors.New("the process runs")
	})
}

// checkEnd checks the end of a process on a full disk, and that its data is undamaged after space was freed.
func (d disk) checkEnd(t *testing.T, p *process) (kubeconfig string, again *process) {
	t.Helper()
	if code := p.exitInTime(t); code != 1 {
		t.Errorf("exit %d", code)
	}
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "keepwatch: ") ||
		!strings.Contains(last, "no space left on device") {
		t.Errorf("the last line is %.500q", last)
	}
	if len(lines) > 20 {
		t.Errorf("stderr has %d lines, which begin with %.1000q", len(lines), p.stderr.String())
	}
	d.freeSpace(t)
	again, kubeconfig = d.serve(t)
	again.waitStderr(t, "keepwatch: ready")
	return kubeconfig, again
}

// A new folder on a disk that is too small for the files of a start, of which the first is a log of 62,500 KiB.
func TestServeStartsOnAFullDisk(t *testing.T) {
	parallel(t)
	for _, extra := range []int{4, 20, 28, 32} {
		t.Run(fmt.Sprint(extra), func(t *testing.T) {
			t.Parallel()
			disk := newDisk(t, 62500+extra)
			p, kubeconfig := disk.serve(t)
			writeUntilEnd(t, p, kubeconfig) // if the disk was large enough for the start
			_, p = disk.checkEnd(t, p)
			terminate(t, p)
		})
	}
}

// The disk becomes full while the layers above etcd start. Their writes may fit; later ones do not.
func TestServeDiskFillsDuringStart(t *testing.T) {
	parallel(t)
	disk := newDisk(t, 80<<10)
	p, kubeconfig := disk.serve(t)
	await.NoError(t, "etcd starts", func() error {
		_, err := os.Stat(filepath.Join(disk.path, "data", "run", "etcd.sock"))
		return err
	})
	disk.fill(t)
	writeUntilEnd(t, p, kubeconfig)
	_, p = disk.checkEnd(t, p)
	terminate(t, p)
}

// The disk becomes full during writes. Acknowledged writes are present after space was freed.
func TestServeDiskFillsWhileServing(t *testing.T) {
	parallel(t)
	// etcd reserves 62,500 KiB for its log, and as much for the next part of it in the background. If that did
	// not fit, the attempt would fill the disk for a moment, in which a start fails.
	disk := newDisk(t, 160<<10)
	p, kubeconfig := disk.serve(t)
	p.waitReady(t)
	maps := clientOf(t, kubeconfig).CoreV1().ConfigMaps("default")
	disk.fill(t)
	written := map[string]bool{}
	await.NoError(t, "writes fail", func() error {
		o, err := maps.Create(t.Context(), large(""), metav1.CreateOptions{})
		if err != nil {
			return nil
		}
		written[o.Name] = true
		return fmt.Errorf("written %d", len(written))
	})
	kubeconfig, p = disk.checkEnd(t, p)
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
