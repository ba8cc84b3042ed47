package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/testserver"
)

// elsewhere makes the test's program one that is on another machine in a cluster: the server, or misbehaving clients.
// The proxy, and the client whose time is measured, shall not wait for the work of these.
const elsewhere = "KEEPWATCH_ELSEWHERE"

// beElsewhere is what TestNeighbours starts, until its input ends.
func beElsewhere(t *testing.T, what string) {
	ctx, cancel := context.WithCancel(t.Context())
	in := json.NewDecoder(os.Stdin)
	end := func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	switch what {
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
		answers := c.misbehave(ctx, func() { fmt.Println("{}") })
		fmt.Println(answers)
	}
}

// startElsewhere starts a process with the lowest priority, gives it some input, and reads what it says when it has
// begun. end ends it, and returns what it has said then.
func startElsewhere(t *testing.T, what string, input, output any) (end func() string) {
	c := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestNeighbours$")
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
	read := make(chan string, 1)
	end = sync.OnceValue(func() string {
		_ = in.Close()
		said := <-read
		if err := c.Wait(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return said
	})
	t.Cleanup(func() { end() })
	said := json.NewDecoder(out)
	err = json.NewEncoder(in).Encode(input)
	if err == nil {
		err = said.Decode(output)
	}
	go func() {
		text, _ := io.ReadAll(io.MultiReader(said.Buffered(), out))
		read <- string(text)
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
	Path   string   // with a # for another number in each request of a client
	Unread bool     // nothing of a response is read; otherwise they ask again and again
}

// begin starts the clients, and returns when each has sent a request. end returns how many answers they read in a
// second.
func (c crowd) begin(t *testing.T) (end func() float64) {
	said := startElsewhere(t, "crowd", c, &struct{}{})
	began := time.Now()
	return func() float64 {
		took := time.Since(began)
		var answers float64
		if _, err := fmt.Sscan(said(), &answers); err != nil {
			t.Error(err)
		}
		return answers / took.Seconds()
	}
}

// misbehave lets all clients misbehave until the context ends, and returns how many answers they have read. It calls
// begun when each has sent a request.
func (c crowd) misbehave(ctx context.Context, begun func()) (answers int64) {
	n := neighbours{host: c.Host, client: newClient()}
	defer n.client.CloseIdleConnections()
	var answered atomic.Int64
	var clients, sent sync.WaitGroup
	sent.Add(len(c.Tokens))
	for _, token := range c.Tokens {
		clients.Go(func() {
			if c.Unread {
				c.silent(ctx, token, sent.Done)
			} else {
				answered.Add(n.again(ctx, token, c.Path, sent.Done))
			}
		})
	}
	sent.Wait()
	begun()
	clients.Wait()
	return answered.Load()
}

// again sends a request again and again until the context ends, and returns how many were answered.
func (r *neighbours) again(ctx context.Context, token, path string, sent func()) (answered int64) {
	for i := 0; ctx.Err() == nil; i++ {
		switch r.ask(ctx, token, strings.ReplaceAll(path, "#", strconv.Itoa(i))) {
		case 0:
		case http.StatusTooManyRequests:
			time.Sleep(10 * time.Millisecond) // less than a client of Kubernetes would wait
		default:
			answered++
		}
		if i == 0 {
			sent()
		}
	}
	return answered
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
