// Plain is a minimal Go server, for comparison: it writes prepared answers. A file of the
// folder is the answer at its name. A watch of /watch receives the file frame as often as
// a GET of /publish requests; that answers with the time of each frame, in nanoseconds
// since 1970, one a line. Standard output has one line, the address.
package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/keepwatch/keepwatch/internal/localhost"
)

func main() {
	dir := flag.String("dir", "", "the folder with the answers, and with tls.crt and tls.key")
	flag.Parse()
	fmt.Fprintln(os.Stderr, run(*dir))
	os.Exit(1)
}

func run(dir string) error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	files, err := filepath.Glob(filepath.Join(dir, "LIST-*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		mux.HandleFunc("GET /"+filepath.Base(file), func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			_, _ = w.Write(body) // a client may go
		})
	}
	frame, err := os.ReadFile(filepath.Join(dir, "frame"))
	if err != nil {
		return err
	}
	f := &broadcaster{frame: frame, woken: make(chan struct{})}
	mux.HandleFunc("GET /watch", f.watch)
	mux.HandleFunc("GET /publish", f.publish)
	listener, err := localhost.Listen()
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	server := &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	return server.ServeTLS(listener, "", "")
}

// feed is a frame and how often it was published.
type broadcaster struct {
	frame []byte

	mu        sync.Mutex
	published int
	woken     chan struct{} // closed by the next frame
}

func (f *broadcaster) state() (published int, woken <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.published, f.woken
}

// watch writes each frame that is published from now on.
func (f *broadcaster) watch(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	for written, _ := f.state(); control.Flush() == nil; {
		published, woken := f.state()
		for published == written {
			select {
			case <-woken:
			case <-r.Context().Done():
				return
			}
			published, woken = f.state()
		}
		for ; written < published; written++ {
			if _, err := w.Write(f.frame); err != nil {
				return
			}
		}
	}
}

// publish publishes n frames, so many a second.
func (f *broadcaster) publish(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.FormValue("n"))
	rate, err2 := strconv.Atoi(r.FormValue("rate"))
	if err := errors.Join(err, err2); err != nil || rate < 1 {
		http.Error(w, fmt.Sprintf("n and rate are numbers: %v", err), http.StatusBadRequest)
		return
	}
	var times bytes.Buffer
	for i, began := 0, time.Now(); i < n; i++ {
		select {
		case <-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(rate)))):
		case <-r.Context().Done():
			return
		}
		fmt.Fprintln(&times, time.Now().UnixNano())
		f.next()
	}
	_, _ = times.WriteTo(w) // a client may go
}

func (f *broadcaster) next() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.published++
	close(f.woken)
	f.woken = make(chan struct{})
}
