package apiserver

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/internal/testonly/await"
	"github.com/keepwatch/keepwatch/test/peer"
)

const (
	asJSON             = "application/json"
	asTable            = "application/json;as=Table;g=meta.k8s.io;v=v1"
	asMetadata         = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	asMetadataProtobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// both is two API servers on one etcd, which answer reads by Keepwatch and by Kubernetes.
type both struct {
	t            *testing.T
	ours, theirs *peer.Server
	client       dynamic.Interface // of ours
	http         map[*peer.Server]*http.Client
}

func startBoth(t *testing.T, flags ...string) *both {
	t.Helper()
	etcd := peer.StartEtcd(t)
	// both would renew one lease
	flags = append(flags, "--feature-gates", "APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false")
	s := &both{t: t, http: map[*peer.Server]*http.Client{}}
	s.ours = peer.KeepwatchAPIServerOn(t, etcd, flags...)
	s.theirs = peer.KeepwatchAPIServerOn(t, etcd, append(flags, "--reads=upstream")...)
	var err error
	if s.client, err = dynamic.NewForConfig(s.ours.Config()); err != nil {
		t.Fatal(err)
	}
	for _, server := range []*peer.Server{s.ours, s.theirs} {
		config := server.Config()
		config.DisableCompression = true
		if s.http[server], err = rest.HTTPClientFor(config); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// answer has the parts of a response that both servers must have in common.
type answer struct {
	status                         int
	media, encoding, warning, body string
}

// tokens, ages, and the revisions of bookmarks
var varying = regexp.MustCompile(`"continue":"[^"]*"|"[0-9]+[smh]"|\{"type":"BOOKMARK"[^\n]*\n`)

func (s *both) get(server *peer.Server, path, accept, encoding string) answer {
	s.t.Helper()
	q, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, server.Config().Host+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header = http.Header{"Accept": {accept}, "Accept-Encoding": {encoding}}
	response, err := s.http[server].Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	a := answer{status: response.StatusCode, media: response.Header.Get("Content-Type"),
		encoding: response.Header.Get("Content-Encoding"), warning: strings.Join(response.Header["Warning"], "")}
	body := io.Reader(response.Body)
	if a.encoding == "gzip" {
		if body, err = gzip.NewReader(body); err == io.EOF {
			body = response.Body // a watch that ended before it sent anything
		} else if err != nil {
			s.t.Fatal(err)
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		s.t.Fatal(err)
	}
	a.body = varying.ReplaceAllString(string(text), "")
	return a
}

// lacks describes the answer if it does not have a mark, in its status, warning or body.
func (a answer) lacks(mark string) string {
	if all := fmt.Sprint(a.status, " ", a.warning, " ", a.body); !strings.Contains(all, mark) {
		return all
	}
	return ""
}

// shows waits until our server's answer has a mark. All requests are those that the read path answers.
func (s *both) shows(path, accept, mark string) {
	s.t.Helper()
	s.eventually(path+" shows "+mark, func() string { return s.get(s.ours, path, accept, "").lacks(mark) })
}

// same waits until both servers answer the same: each follows definitions and APIServices itself.
func (s *both) same(path, accept, encoding string) {
	s.t.Helper()
	s.eventually(path+" is the same as "+accept, func() string {
		ours, theirs := s.get(s.ours, path, accept, encoding), s.get(s.theirs, path, accept, encoding)
		if ours == theirs {
			return ""
		}
		return fmt.Sprintf("\nours   %+v\ntheirs %+v", ours, theirs)
	})
}

// answersFromMemory waits until the read path answers the GETs or LISTs of a path.
func (s *both) answersFromMemory(path string) {
	s.t.Helper()
	const requests = 20
	s.eventually(path+" is answered from memory", func() string {
		before := s.answered()
		for range requests {
			s.get(s.ours, path, asJSON, "")
		}
		if n := s.answered() - before; n < requests {
			return fmt.Sprint(n, " of ", requests, " requests")
		}
		return ""
	})
}

// answered returns the number of GETs and LISTs that our server's read path has answered.
func (s *both) answered() (sum int) {
	s.t.Helper()
	for line := range strings.Lines(s.get(s.ours, "/metrics", "text/plain", "").body) {
		if labels, ok := strings.CutPrefix(line, "keepwatch_readpath_answered_total"); ok &&
			!strings.Contains(labels, `"watch"`) {
			_, value, _ := strings.Cut(labels, " ")
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				s.t.Fatal(err)
			}
			sum += int(n)
		}
	}
	return sum
}

// eventually polls until nothing is wrong.
func (s *both) eventually(what string, wrong func() string) {
	s.t.Helper()
	await.State(s.t, what, func() (bool, string) {
		now := wrong()
		return now == "", fmt.Sprintf("%.2000s", now)
	})
}
