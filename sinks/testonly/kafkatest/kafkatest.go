// Package kafkatest runs a real Kafka broker for a test, as one process with its controller: it can be killed and
// started again. Without java, or without the jars of make kafka, the test is skipped.
//
//	kafkatest.go  the broker
//	consumer.go   a consumer of committed records
//	pom.xml       the jars
package kafkatest

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/internal/testonly/child"
)

// Server is a Kafka broker on 127.0.0.1 with three listeners. Kafka tells clients where to connect, so a proxy in front
// of it needs a listener of its own.
type Server struct {
	tb      testing.TB
	dir     string
	jars    string
	plain   int // ports
	proxied int
	secure  int
	process *child.Process // nil: it was killed
}

// Start starts a broker that ends with the test. If proxy is set, it gets the address of a listener, and returns the
// address that clients of this listener are to use. Start skips the test if this machine cannot run Kafka, and with
// -short.
func Start(tb testing.TB, proxy func(server string) (advertised string)) *Server {
	tb.Helper()
	if testing.Short() {
		tb.Skip("with -short Kafka is NOT tested")
	}
	jars, missing := jars()
	if missing != "" {
		tb.Skip(missing)
	}
	s := &Server{tb: tb, dir: tb.TempDir(), jars: jars}
	var controller int
	for _, port := range []*int{&s.plain, &s.proxied, &s.secure, &controller} {
		var err error
		if *port, err = localhost.FreePort(); err != nil {
			tb.Fatal(err)
		}
	}
	advertised := address(s.proxied)
	if proxy != nil {
		advertised = proxy(advertised)
	}
	s.configure(controller, advertised)
	format := s.java("kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", "a2VlcHdhdGNoLWthZmthdA",
		"--config", s.path("config"))
	if out, err := format.CombinedOutput(); err != nil {
		tb.Fatalf("format: %v\n%s", err, out)
	}
	tb.Cleanup(func() {
		s.Kill()
		child.ShowLog(tb, "Kafka", s.path("log"))
	})
	s.Restart()
	return s
}

// Missing returns why this machine cannot run Kafka, or "".
func Missing() string {
	_, missing := jars()
	return missing
}

// jars returns the directory of the jars, bin/kafka/lib in a folder that the test's is in, or why there is none.
func jars() (dir, missing string) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", "no java: Kafka is NOT tested"
	}
	dir, err := os.Getwd()
	for err == nil {
		lib := filepath.Join(dir, "bin", "kafka", "lib")
		if found, _ := filepath.Glob(filepath.Join(lib, "kafka_*.jar")); len(found) > 0 { // the pattern is valid
			return lib, ""
		}
		above := filepath.Dir(dir)
		if above == dir {
			break
		}
		dir = above
	}
	return "", "no jars in bin/kafka/lib: Kafka is NOT tested (make kafka)"
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) configure(controller int, advertised string) {
	s.tb.Helper()
	authority, pair, err := certificate()
	if err != nil {
		s.tb.Fatal(err)
	}
	text := fmt.Sprintf(`
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=%[1]s
listeners=PLAIN://%[2]s,PROXIED://%[3]s,SECURE://%[4]s,CONTROLLER://%[1]s
advertised.listeners=PLAIN://%[2]s,PROXIED://%[5]s,SECURE://%[4]s,CONTROLLER://%[1]s
listener.security.protocol.map=PLAIN:PLAINTEXT,PROXIED:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location=%[6]s
log.dirs=%[7]s
# A user with SASL may do what no ACL denies, any other client everything.
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
# One broker has all replicas.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
# The controller accepts a killed broker again when its old session has timed out.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# Less to recover after a kill.
offsets.topic.num.partitions=1
transaction.state.log.num.partitions=1
# Compaction happens while a test runs.
log.cleaner.backoff.ms=200
`, address(controller), address(s.plain), address(s.proxied), address(s.secure), advertised, s.path("key.pem"),
		s.path("data"))
	for name, content := range map[string][]byte{
		"config": []byte(text), "ca.pem": authority, "key.pem": pair,
	} {
		if err := os.WriteFile(s.path(name), content, 0o600); err != nil {
			s.tb.Fatal(err)
		}
	}
}

// certificate returns a certificate authority, and a key with its certificate as Kafka reads it.
func certificate() (authority, pair []byte, err error) {
	c, err := localhost.NewCertificate()
	if err != nil {
		return nil, nil, err
	}
	parsed, err := c.Pair()
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(parsed.PrivateKey)
	return c.Authority, append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), c.Cert...), err
}

// java returns a command of Kafka, for a process that lives shortly on few processors.
func (s *Server) java(class string, args ...string) *exec.Cmd {
	return exec.Command("java", append([]string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
		"-cp", filepath.Join(s.jars, "*"), class,
	}, args...)...)
}

// Addr returns the address of the broker.
func (s *Server) Addr() string { return address(s.plain) }

// Secure returns the address for TLS and SASL by SCRAM-SHA-512, and the file of the certificate authority.
func (s *Server) Secure() (addr, ca string) { return address(s.secure), s.path("ca.pem") }

// Restart starts the broker, and waits until it accepts connections. The broker must not run.
func (s *Server) Restart() {
	s.tb.Helper()
	var err error
	if s.process, err = child.Start(s.java("kafka.Kafka", s.path("config")), s.path("log")); err != nil {
		s.tb.Fatal(err)
	}
	for end := time.Now().Add(await.Deadline); ; time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.process.Done():
			s.tb.Fatalf("Kafka has ended: %v", s.process.Err())
		default:
		}
		conn, err := net.Dial("tcp", s.Addr())
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			s.tb.Fatalf("Kafka did not start within %v: %v", await.Deadline, err)
		}
	}
}

// Kill ends the broker with SIGKILL.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	s.process.Kill()
	s.process = nil
}

// Log returns what the broker has written, warnings and errors.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.path("log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
