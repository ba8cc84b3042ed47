package served

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
	"github.com/keepwatch/keepwatch/test/bench/wire"
	"github.com/keepwatch/keepwatch/test/peer"
)

// plainLists are the lists of the plain server.
var plainLists = []listMode{listJSON, listGzip, listProtobuf}

// Bodies are answers of an API server, in a folder, for the plain server.
type Bodies struct {
	dir   string
	sizes map[string]int64 // by the row
}

func (b *Bodies) name(l listMode) string { return strings.ReplaceAll(l.Row, " ", "-") }

// frameName is the file with one event of a watch.
const frameName = "frame"

// saveBodies saves the server's answers for the plain server.
func (s *subject) saveBodies(ctx context.Context, dir string) (*Bodies, error) {
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	b := &Bodies{dir: dir, sizes: map[string]int64{}}
	for _, l := range plainLists {
		if b.sizes[l.Row], err = conn.save(ctx, l, filepath.Join(dir, b.name(l))); err != nil {
			return nil, err
		}
	}
	var frame bytes.Buffer
	whole := make(chan struct{})
	answer, err := conn.Get(watchListJSON.request(func(p []byte) {
		if !bytes.HasSuffix(frame.Bytes(), []byte{'\n'}) {
			line, _, found := bytes.Cut(p, []byte{'\n'})
			if frame.Write(line); found {
				frame.WriteByte('\n')
				close(whole)
			}
		}
	}))
	if err != nil {
		return nil, err
	}
	select {
	case <-whole:
	case <-answer.Done():
		return nil, errors.New("a watch has no events")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn.close()
	return b, os.WriteFile(filepath.Join(dir, frameName), frame.Bytes(), 0o600)
}

// save writes the body of a list to a file.
func (l *link) save(ctx context.Context, list listMode, file string) (length int64, err error) {
	f, err := os.Create(file)
	if err != nil {
		return 0, err
	}
	out := bufio.NewWriter(f)
	_, err = l.fetch(ctx, list.request(func(p []byte) {
		n, _ := out.Write(p) // Flush has the error
		length += int64(n)
	}))
	return length, errors.Join(err, out.Flush(), f.Close())
}

// Plain is a plain Go server that writes saved answers.
type Plain struct {
	subject
	bodies *Bodies
}

// StartPlain builds and starts one, which listens on 127.0.0.1. The caller ends it.
func StartPlain(ctx context.Context, b *Bodies) (*Plain, error) {
	program := filepath.Join(b.dir, "plain")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "github.com/keepwatch/keepwatch/test/bench/plain")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	certificate, err := localhost.NewCertificate()
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{"tls.crt": certificate.Cert, "tls.key": certificate.Key} {
		if err := os.WriteFile(filepath.Join(b.dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate.Authority)
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	process, err := peer.Start(peer.Command{Path: program, Args: []string{"-dir", b.dir}, Log: filepath.Join(b.dir,
		"plain.log"), Stdout: stdout})
	_ = stdout.Close()
	if err != nil {
		return nil, err
	}
	address, err := bufio.NewReader(out).ReadString('\n') // it has loaded everything
	if err != nil {
		process.Kill()
		text, _ := os.ReadFile(filepath.Join(b.dir, "plain.log"))
		return nil, fmt.Errorf("the plain server does not start: %w: %s", err, text)
	}
	return &Plain{bodies: b, subject: subject{
		by: PlainGo, runs: 3, process: func() *peer.Process { return process },
		endpoint: wire.Endpoint{Address: strings.TrimSpace(address), TLS: &tls.Config{RootCAs: roots}},
	}}, nil
}

// End ends the server.
func (p *Plain) End() { p.process().Kill() }

// measureList measures a saved list.
func (p *Plain) measureList(ctx context.Context, r *Report, l listMode) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.close()
	length := p.bodies.sizes[l.Row]
	saved := l
	saved.path = "/" + p.bodies.name(l)
	u, err := p.repeat(func() error { return saved.read(ctx, conn, length) })
	if err == nil {
		r.Add(p.by, l.Row, append(u.figures(), size(body, length))...)
	}
	return err
}

// publish has the server write its frame to all watchers, n times.
func (p *Plain) publish(ctx context.Context, n, rate int) ([]written, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.close()
	var times strings.Builder
	_, err = conn.fetch(ctx, wire.Request{Path: fmt.Sprintf("/publish?n=%d&rate=%d", n, rate), Accept: "text/plain",
		Data: func(p []byte) { times.Write(p) }})
	if err != nil {
		return nil, err
	}
	var all []written
	for line := range strings.Lines(times.String()) {
		at, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, written{int64(len(all)), time.Unix(0, at)})
	}
	if len(all) != n {
		return nil, fmt.Errorf("%w: the plain server wrote %d frames of %d", io.ErrUnexpectedEOF, len(all), n)
	}
	return all, nil
}
