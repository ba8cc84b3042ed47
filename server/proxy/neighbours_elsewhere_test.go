package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
)

// elsewhere makes the test's program one that is on another machine in a cluster: the server, or misbehaving clients.
// The proxy, and the client whose time is measured, shall not wait for the work of these.
const elsewhere = "KEEPWATCH_ELSEWHERE"

// TestElsewhere is what TestNeighbours starts, until its input ends.
func TestElsewhere(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in := json.NewDecoder(os.Stdin)
	end := func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	switch os.Getenv(elsewhere) {
	case "":
		t.Skip("it is a part of TestNeighbours")
	case "server":
		c := testserver.New(t, testserver.RBAC()).Config()
		if err := json.NewEncoder(os.Stdout).Encode(serverAddress{c.Host, c.BearerToken, c.CAData}); err != nil {
			t.Fatal(err)
		}
		end()
	case "crowd":
		var c crowd
		if err := in.Decode(&c); err != nil {
			t.Fatal(err)
		}
		go end()
		c.misbehave(ctx, func() { fmt.Println("{}") })
	}
}

// startElsewhere starts a process with the lowest priority, gives it some input, and reads what it says when it has
// begun.
func startElsewhere(t *testing.T, what string, input, output any) (end func()) {
	c := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestElsewhere$")
	c.Env = append(os.Environ(), elsewhere+"="+what)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	end = sync.OnceFunc(func() {
		_ = in.Close()
		<-read
		if err := c.Wait(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(end)
	lines := bufio.NewReader(out)
	err = json.NewEncoder(in).Encode(input)
	if err == nil {
		err = json.NewDecoder(lines).Decode(output)
	}
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, lines)
	}()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return end
}

// serverAddress is where an administrator reaches a server.
type serverAddress struct {
	Host, Token string
	CA          []byte
}

// serverElsewhere starts a server, until the end of the test.
func serverElsewhere(t *testing.T) *rest.Config {
	var a serverAddress
	startElsewhere(t, "server", nil, &a)
	return &rest.Config{Host: a.Host, BearerToken: a.Token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: a.CA}}
}

// crowd is what misbehaving clients do.
type crowd struct {
	Host   string
	Tokens []string // one of each client
	Path   string
	Unread bool // nothing of a response is read; otherwise they ask again and again
}

// begin starts the clients, and returns when each has sent a request.
func (c crowd) begin(t *testing.T) (end func()) { return startElsewhere(t, "crowd", c, &struct{}{}) }

// misbehave lets all clients misbehave until the context ends. It calls begun when each has sent a request.
func (c crowd) misbehave(ctx context.Context, begun func()) {
	n := neighbours{host: c.Host, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}}
	defer n.client.CloseIdleConnections()
	var clients, sent sync.WaitGroup
	sent.Add(len(c.Tokens))
	for _, token := range c.Tokens {
		clients.Go(func() {
			if c.Unread {
				c.silent(ctx, token, sent.Done)
			} else {
				n.again(ctx, token, c.Path, sent.Done)
			}
		})
	}
	sent.Wait()
	begun()
	clients.Wait()
}

// again sends a request again and again until the context ends.
func (r *neighbours) again(ctx context.Context, token, path string, sent func()) {
	for i := 0; ctx.Err() == nil; i++ {
		if r.ask(ctx, token, path) == http.StatusTooManyRequests {
			time.Sleep(10 * time.Millisecond) // less than a client of Kubernetes would wait
		}
		if i == 0 {
			sent()
		}
	}
}

// silent sends a request and reads nothing of the response until the context ends.
func (c crowd) silent(ctx context.Context, token string, sent func()) {
	connection, err := net.Dial("tcp", strings.TrimPrefix(c.Host, "http://"))
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	_ = connection.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, err = fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", c.Path, token)
	if err != nil {
		panic(err)
	}
	sent()
	<-ctx.Done()
}
