package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

// Server is a Postgres server on 127.0.0.1 with the superuser "keepwatch" and no password.
type Server struct {
	tb         testing.TB
	bin, dir   string
	port       int
	settings   []string // NAME=VALUE
	attributes *syscall.SysProcAttr
	process    *child.Process // nil: it has ended
}

// Missing returns why this machine cannot run Postgres, or "".
func Missing() string {
	if len(initdbs()) > 0 {
		return ""
	}
	return "no Postgres in /usr/lib/postgresql: Postgres is NOT tested (apt-get install postgresql)"
}

func initdbs() []string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is valid
	return found
}

// Start starts a server that ends with the test. The settings, as NAME=VALUE, override those of tests. Start skips the
// test if this machine has no Postgres, and with -short.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("with -short Postgres is NOT tested")
	}
	if missing := Missing(); missing != "" {
		tb.Skip(missing)
	}
	s := newServer(tb, settings)
	initdb := s.command("initdb", "-D", s.data(), "-U", "keepwatch", "-A", "trust", "-E", "UTF8", "--locale=C",
		"--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	s.Restart()
	return s
}

// newServer returns a server without data, which ends with the test.
func newServer(tb testing.TB, settings []string) *Server {
	tb.Helper()
	port, err := localhost.FreePort()
	if err != nil {
		tb.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "keepwatch-postgres-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	s := &Server{tb: tb, bin: filepath.Dir(slices.Max(initdbs())), dir: dir, port: port, settings: settings}
	if s.attributes, err = owner(dir); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		s.Kill()
		child.ShowLog(tb, "Postgres", s.log())
	})
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }
func (s *Server) log() string  { return filepath.Join(s.dir, "log") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attributes
	cmd.Env = []string{"PATH=" + s.bin, "LC_ALL=C"}
	return cmd
}

// URL returns the address of the tables in a schema.
func (s *Server) URL(schema string) string {
	return fmt.Sprintf("postgres://keepwatch@%s/postgres?sslmode=disable&search_path=%s", s.Addr(), schema)
}

// Addr returns the address that accepts connections.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Restart starts the server, and waits until it accepts connections. The server must not
// run.
func (s *Server) Restart() {
	s.tb.Helper()
	for end := time.Now().Add(await.Deadline); ; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.tb.Fatalf("Postgres did not start within %v", await.Deadline)
		}
		if s.process == nil {
			s.launch()
		}
		select {
		case <-s.process.Done(): // processes of a killed server still end
			s.process = nil
			continue
		default:
		}
		if s.command("pg_isready", "-q", "-U", "keepwatch", "-d", "postgres", "-h", "127.0.0.1", "-p",
			strconv.Itoa(s.port)).Run() == nil {
			return
		}
	}
}

func (s *Server) launch() {
	s.tb.Helper()
	// fsync protects from a crash of the machine, which no test has.
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port)}
	for _, setting := range append([]string{"listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off",
		"max_connections=30", "shared_buffers=64MB"}, s.settings...) {
		args = append(args, "-c", setting)
	}
	cmd := s.command("postgres", args...)
	var err error
	if s.process, err = child.Start(cmd, s.log()); err != nil {
		s.tb.Fatal(err)
	}
}

// Kill ends the server and its processes with SIGKILL.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	killGroup(s.process.PID())
	<-s.process.Done()
	s.process = nil
}

// RequirePassword creates a role that must log in with a password, unlike the others.
func (s *Server) RequirePassword(role, password string) {
	s.tb.Helper()
	rules := fmt.Sprintf("host all %s 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n", role)
	if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(rules), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	s.SQL(fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD '%s'`, role, password))
	s.SQL(`SELECT pg_reload_conf()`)
	for s.client(role, `SELECT`).Run() == nil { // the server has not read the rules yet
		if s.tb.Context().Err() != nil {
			s.tb.Fatal("the password is not required")
		}
	}
}

// Dir returns a new directory, and own, which gives it to the server's user: for a tablespace on a disk that is mounted
// there.
func (s *Server) Dir() (dir string, own func()) {
	s.tb.Helper()
	dir, err := os.MkdirTemp(s.dir, "tablespace-")
	if err != nil {
		s.tb.Fatal(err)
	}
	return dir, func() {
		s.tb.Helper()
		if _, err := owner(dir); err != nil {
			s.tb.Fatal(err)
		}
	}
}

// SQL executes statements as the superuser, and returns psql's output without headers.
func (s *Server) SQL(statements string) string {
	s.tb.Helper()
	out, err := s.client("keepwatch", statements).CombinedOutput()
	if err != nil {
		s.tb.Fatalf("%s: %v\n%s", statements, err, out)
	}
	return strings.TrimSpace(string(out))
}

// client is psql, without a password.
func (s *Server) client(role, statements string) *exec.Cmd {
	return s.command("psql", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", role, "-d", "postgres", "-w",
		"-v", "ON_ERROR_STOP=1", "-qAt", "-c", statements)
}
