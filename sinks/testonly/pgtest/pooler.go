package pgtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

// MissingPooler returns why this machine cannot run PgBouncer, or "".
func MissingPooler() string {
	if _, err := exec.LookPath(pgBouncer); err != nil {
		return "no " + pgBouncer + ": poolers are NOT tested (apt-get install pgbouncer)"
	}
	return ""
}

const pgBouncer = "/usr/sbin/pgbouncer"

// Pooler starts a PgBouncer of the server in a pool_mode, which ends with the test, and returns its address. It skips
// the test, which may be a part of the server's, if this machine has none.
func (s *Server) Pooler(tb testing.TB, mode string) string {
	tb.Helper()
	if missing := MissingPooler(); missing != "" {
		tb.Skip(missing)
	}
	port, err := localhost.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	config, log := filepath.Join(s.dir, mode+".ini"), filepath.Join(s.dir, mode+".log")
	text := fmt.Sprintf(`[databases]
postgres = host=127.0.0.1 port=%d user=keepwatch
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 5
`, s.port, port, mode)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(pgBouncer, config)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attributes
	process, err := child.Start(cmd, log)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		killGroup(process.PID())
		<-process.Done()
		child.ShowLog(tb, "PgBouncer", log)
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for end := time.Now().Add(await.Deadline); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return address
		}
		select {
		case <-process.Done():
			tb.Fatalf("PgBouncer has ended: %v", process.Err())
		default:
		}
		if time.Now().After(end) {
			tb.Fatalf("PgBouncer did not start within %v: %v", await.Deadline, err)
		}
	}
}
