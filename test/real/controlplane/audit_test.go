package controlplane

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// auditPolicy records all reads, with their user agents.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [get, list, watch]
- level: None
`

// auditLog is the API server's audit log, which counts reads by user agent.
type auditLog struct {
	policy, file string
	marked       time.Time
}

func newAuditLog(dir string) (*auditLog, error) {
	l := &auditLog{policy: filepath.Join(dir, "policy.yaml"), file: filepath.Join(dir, "audit.log")}
	return l, os.WriteFile(l.policy, []byte(auditPolicy), 0o644)
}

// flags are the API server's.
func (l *auditLog) flags() []string {
	return []string{"--audit-policy-file", l.policy, "--audit-log-path", l.file}
}

// mark sets the time from which on since counts.
func (l *auditLog) mark() { l.marked = time.Now() }

// components are the beginnings of the user agents of a cluster's components.
var components = []string{"kube-controller-manager", "kube-scheduler", "kwok"}

// resumption counts the requests of a cluster's components. Those that read everything are the server's fault, unless
// the server has answered no request for the same objects before: client-go repeats a watch whose connection was
// refused, and gives up one whose connection was reset. A process that is killed closes its listener after its
// connections, and resets the connections that clients open after the former and before the latter.
type resumption struct {
	lists, streams int           // that read everything, after an answer
	unanswered     int           // that read everything, after none
	watches        int           // that resume
	following      time.Duration // from the mark until each component had opened each of its watches once
}

// since counts the requests after the mark, and logs those that read everything.
func (l *auditLog) since(logf func(string, ...any)) (r resumption, err error) {
	f, err := os.Open(l.file)
	if err != nil {
		return r, err
	}
	defer f.Close()
	opened, answered := map[string]bool{}, map[string]bool{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb, RequestURI, UserAgent string
			RequestReceivedTimestamp           time.Time
			StageTimestamp                     time.Time
			ResponseStatus                     struct {
				Code   int
				Reason string
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the line that a kill cut off
		}
		if e.RequestReceivedTimestamp.Before(l.marked) || !fromComponent(e.UserAgent) {
			continue
		}
		uri, err := url.Parse(e.RequestURI)
		if err != nil {
			return r, err
		}
		watch, initial := watchOf(e.UserAgent, uri), uri.Query().Get("sendInitialEvents") == "true"
		switch {
		case e.ResponseStatus.Code >= http.StatusBadRequest:
			logf("%d %s after the restart: %s by %s", e.ResponseStatus.Code, e.ResponseStatus.Reason, e.RequestURI, e.UserAgent)
		case e.Verb == "list", e.Verb == "watch" && e.Stage == "ResponseStarted" && initial:
			logf("read everything after the restart, the server had answered it before: %t: %s by %s", answered[watch],
				e.RequestURI, e.UserAgent)
			switch {
			case !answered[watch]:
				r.unanswered++
			case initial:
				r.streams++
			default:
				r.lists++
			}
		case e.Verb == "watch" && e.Stage == "ResponseStarted":
			r.watches++
		}
		if e.Verb == "watch" && e.Stage == "ResponseStarted" && e.ResponseStatus.Code < http.StatusBadRequest &&
			!opened[watch] {
			opened[watch] = true
			r.following = max(r.following, e.StageTimestamp.Sub(l.marked))
		}
		answered[watch] = true
	}
	return r, lines.Err()
}

// watchOf names the watch, or list, of a component: the same before and after it is opened again.
func watchOf(userAgent string, uri *url.URL) string {
	q := uri.Query()
	return userAgent + " " + uri.Path + " " + q.Get("labelSelector") + " " + q.Get("fieldSelector")
}

func fromComponent(userAgent string) bool {
	for _, c := range components {
		if strings.HasPrefix(userAgent, c) {
			return true
		}
	}
	return false
}
