package pgtest

import (
	"os"
	"strconv"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
)

// Standby starts a server that follows this one: what is committed here arrives there later, and never if this one is
// killed before.
func (s *Server) Standby() *Server {
	s.tb.Helper()
	standby := newServer(s.tb, s.settings)
	standby.Follow(s)
	return standby
}

// Follow makes a server that does not run the standby of another one. What it had is lost.
func (s *Server) Follow(primary *Server) {
	s.tb.Helper()
	if err := os.RemoveAll(s.data()); err != nil {
		s.tb.Fatal(err)
	}
	backup := s.command("pg_basebackup", "-h", "127.0.0.1", "-p", strconv.Itoa(primary.port), "-U", "keepwatch", "-w",
		"-D", s.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync")
	if out, err := backup.CombinedOutput(); err != nil {
		s.tb.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	s.Restart()
	s.awaitReceivers("1")
}

// Detach makes a standby receive nothing more.
func (s *Server) Detach() {
	s.tb.Helper()
	s.SQL(`ALTER SYSTEM SET primary_conninfo = ''`)
	s.SQL(`SELECT pg_reload_conf()`)
	s.awaitReceivers("0")
}

// awaitReceivers waits until so many processes receive from the primary.
func (s *Server) awaitReceivers(n string) {
	s.tb.Helper()
	await.State(s.tb, n+" processes receive from the primary", func() (bool, string) {
		streaming := s.SQL(`SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'`)
		return streaming == n, streaming
	})
}

// Promote makes a standby accept writes.
func (s *Server) Promote() {
	s.tb.Helper()
	if promoted := s.SQL(`SELECT pg_promote()`); promoted != "t" {
		s.tb.Fatalf("pg_promote: %s", promoted)
	}
}
