package differential

import (
	"encoding/base64"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Exchange is a request, the answers of both servers, and the state of the world then.
type Exchange struct {
	Request      Request
	Theirs, Ours Answer
	// Judged has the differences between ours and the history, where theirs no longer has the
	// history.
	Judged []Difference
	World  WorldState
}

// WorldState has the revisions that decide which history a server must have.
type WorldState struct {
	// Origin is where both servers' history begins, Compacted where etcd's does.
	Origin, Compacted int64
	Revision          int64
}

// exception permits a difference, for a reason that docs/verification.md describes.
type exception struct {
	name    string
	permits func(Exchange, Difference) bool
}

// commonExceptions are the differences that are meant to be, with any kube-apiserver.
var commonExceptions = []exception{
	{
		name: "ours still has the history that theirs answers 410 for",
		permits: func(e Exchange, d Difference) bool {
			// What is found may still not be shown as the request wants it.
			found := !e.Ours.expired() && e.Ours.Status >= http.StatusOK && e.Ours.Status < http.StatusInternalServerError
			return e.Theirs.expired() && found && d.Where != contradiction
		},
	},
	{
		// The test compacts etcd behind both servers, and restarts ours afterwards.
		name: "ours was restarted when etcd had forgotten what theirs still has",
		permits: func(e Exchange, _ Difference) bool {
			n := e.Request.revision()
			return e.Ours.expired() && !e.Theirs.expired() && 0 < n && n < e.World.Compacted &&
				e.World.Compacted < e.World.Origin
		},
	},
	{
		// Theirs waits for it without a word (kubernetes #107457), except with
		// sendInitialEvents: then it answers 504 after 3 s, even if the watch has less time.
		name: "a watch's revision is in the future: ours answers 410, or ends in time",
		permits: func(e Exchange, d Difference) bool {
			return e.Request.Stream && e.Request.revision() > e.World.Revision &&
				(e.Ours.expired() || strings.Contains(d.Theirs, "Too large resource version"))
		},
	},
	{
		// Theirs writes it one way where its cache answers, the other way where etcd
		// does, and reads both.
		name: "a continue token begins with a slash, or without",
		permits: func(_ Exchange, d Difference) bool {
			return d.Where == "body .metadata.continue" && d.Theirs != d.Ours && start(d.Theirs) != "" &&
				start(d.Theirs) == start(d.Ours)
		},
	},
	{
		// The same: its cache ignores the limit, etcd does not. A long answer is
		// compressed.
		name: "a limit beside a continue token and resourceVersion=0 is ignored, or not",
		permits: func(e Exchange, d Difference) bool {
			o := e.Request.Options
			return o.Has("continue") && o.Has("limit") && o.Get("resourceVersion") == "0" &&
				(strings.HasSuffix(d.Where, " (length)") || strings.HasPrefix(d.Where, "body .metadata.") ||
					d.Where == "header Content-Encoding" || d.Where == "header Vary")
		},
	},
	{
		// Kubernetes 1.37 asks etcd for it as a negative revision, which means the newest.
		name: "theirs takes a revision above 2⁶³ for the newest one",
		permits: func(e Exchange, _ Difference) bool {
			revision, err := strconv.ParseUint(e.Request.Options.Get("resourceVersion"), 10, 64)
			return err == nil && revision > math.MaxInt64 && e.Theirs.Status == http.StatusOK &&
				e.Ours.Status == http.StatusGatewayTimeout
		},
	},
}

// compressed: Kubernetes 1.37, whose library ours uses, compresses streaming lists; 1.36 does not.
var compressed = exception{
	name: "ours compresses streaming lists",
	permits: func(e Exchange, d Difference) bool {
		return e.Request.Stream && d.Theirs == "" && (d.Where == "header Content-Encoding" && d.Ours == "gzip" ||
			d.Where == "header Vary" && d.Ours == "Accept-Encoding")
	},
}

// notCompleted: kube-apiserver's registries complete services and claims that older versions stored when it answers
// with them. They do not recognize the objects that its watch cache shares between watches: those of events
// that it sends when they happen.
var notCompleted = exception{
	name: "theirs does not complete an event of an object that an older version stored",
	permits: func(e Exchange, d Difference) bool {
		field := d.Where[strings.LastIndex(d.Where, ".")+1:]
		switch {
		case !e.Request.Stream:
			return false
		case d.Theirs == "null":
			return slices.Contains([]string{"clusterIPs", "ipFamilies", "ipFamilyPolicy", "dataSourceRef"}, field)
		}
		// its first cluster IP
		return field == "cells[]" && strings.HasSuffix(e.Request.Path, "/services") && d.Theirs == excerpt("<none>")
	},
}

// start returns the start key of a quoted continue token, without the slash.
func start(quoted string) string {
	text, err := base64.RawURLEncoding.DecodeString(strings.Trim(quoted, `"`))
	if err != nil {
		return ""
	}
	return strings.Replace(string(text), `"start":"/`, `"start":"`, 1)
}

// laterStart excuses a server that has only the history since its start, and must read the
// rest from etcd.
var laterStart = exception{
	name: "ours started later",
	permits: func(e Exchange, _ Difference) bool {
		return e.Ours.expired() && e.Request.revision() < e.World.Origin
	},
}

// expired reports whether an answer is 410, as its status or as its only event.
func (a Answer) expired() bool {
	if a.Streamed {
		return len(a.Events) == 1 && a.Events[0].Type == "ERROR" && strings.Contains(string(a.Events[0].Object),
			"too old resource version")
	}
	return a.Status == http.StatusGone
}
