package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/keepwatch/keepwatch/sinks/testonly/pgtest"
)

// testFullDisk fills the disk of the tables, until somebody frees space.
func testFullDisk(t *testing.T, server *pgtest.Server) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: full disks are not tested, because this process may not mount one: run it as root")
	}
	disk, own := server.Dir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("SKIPPED: full disks are not tested, because this process may not mount one (%v)", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	own()
	filler := filepath.Join(disk, "filler")
	if err := os.WriteFile(filler, make([]byte, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	server.SQL(fmt.Sprintf(`CREATE TABLESPACE small LOCATION '%s'`, disk))
	server.SQL(`GRANT CREATE ON TABLESPACE small TO PUBLIC`)
	f := startFailing(t, server, "fulldisk", inTablespace("small"))
	random := rand.NewChaCha8([32]byte{}) // does not compress
	noise := func() string {
		text := make([]byte, 256<<10)
		_, _ = random.Read(text)
		return fmt.Sprintf(`{"noise":"%x"}`, text)
	}
	var err error
	for range 100 {
		if err = f.add(t.Context(), noise()); err != nil {
			break
		}
	}
	unavailable(t, err, "No space left on device")
	if f.count < 2 {
		t.Errorf("%d rows were written before", f.count)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	f.reopen()
	if err := f.add(t.Context(), noise()); err != nil {
		t.Error(err)
	}
	if got := server.SQL(`SELECT count(*) FROM fulldisk.resources`); got != fmt.Sprint(f.count) {
		t.Errorf("%s rows, want %d", got, f.count)
	}
	f.Close()
	server.SQL(`DROP SCHEMA fulldisk CASCADE`)
	server.SQL(`DROP TABLESPACE small`)
}
