package proxy

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/klog/v2"

	"github.com/keepwatch/keepwatch/server/proxy/internal/fairness"
)

// pageEvery is how often an open page is brought up to date.
const pageEvery = 2 * time.Second

// pageUnread is how long a page may be open of which nothing is read.
const pageUnread = time.Minute

//go:embed page
var pageFiles embed.FS

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"size": Size, "ago": Ago, "counts": Counts, "spark": Spark, "lower": func(v any) string { return strings.ToLower(fmt.Sprint(v)) },
}).ParseFS(pageFiles, "page/*.html"))

// Size returns a number of bytes for people: 1.5Mi.
func Size(bytes int64) string {
	for _, unit := range []struct {
		name  string
		bytes float64
	}{{"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n := float64(bytes) / unit.bytes; n >= 1 {
			return fmt.Sprintf("%.1f%s", n, unit.name)
		}
	}
	return fmt.Sprint(bytes)
}

// Counts returns the sum of numbers, and the numbers by their names: 3 (expired 2, silent 1).
func Counts(by map[string]uint64) string {
	var sum uint64
	var each []string
	for _, name := range slices.Sorted(maps.Keys(by)) {
		sum += by[name]
		each = append(each, fmt.Sprintf("%s %d", name, by[name]))
	}
	if len(by) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%s)", sum, strings.Join(each, ", "))
}

// Ago returns how long ago a time was, for people: 3s. It returns a hyphen for nil.
func Ago(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return max(0, time.Since(*t)).Round(time.Second).String()
}

// eventsPath has the changing part of the page, for ever.
const eventsPath = "/keepwatch/events"

// installPage serves the status: as a page, as its changing part by server-sent events, and as JSON.
func (p *Proxy) installPage(to *mux.PathRecorderMux) {
	to.HandleFunc("/keepwatch", func(w http.ResponseWriter, q *http.Request) {
		http.Redirect(w, q, "keepwatch/", http.StatusFound)
	})
	to.HandleFunc("/keepwatch/", p.servePage)
	to.HandleFunc(eventsPath, p.serveEvents)
	to.HandleFunc("/keepwatch/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(p.Status())
	})
	for _, name := range []string{"page.js", "page.css"} {
		to.HandleFunc("/keepwatch/"+name, func(w http.ResponseWriter, q *http.Request) {
			http.ServeFileFS(w, q, pageFiles, "page/"+name)
		})
	}
}

func (p *Proxy) servePage(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy",
		"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(p.render("page.html"))
}

// serveEvents sends the changing part of the page until the client is gone.
func (p *Proxy) serveEvents(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	fairness.Leave(q.Context())
	ticker := time.NewTicker(pageEvery)
	defer ticker.Stop()
	out := http.NewResponseController(w)
	for {
		var event bytes.Buffer
		for line := range bytes.Lines(p.render("status.html")) {
			event.WriteString("data: ")
			event.Write(bytes.TrimRight(line, "\n"))
			event.WriteByte('\n')
		}
		event.WriteByte('\n')
		_ = out.SetWriteDeadline(time.Now().Add(pageUnread))
		if _, err := w.Write(event.Bytes()); err != nil || out.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-q.Context().Done():
			return
		}
	}
}

func (p *Proxy) render(name string) []byte {
	var b bytes.Buffer
	if err := pageTemplate.ExecuteTemplate(&b, name, p.Status()); err != nil {
		klog.ErrorS(err, "The page can't be written")
	}
	return b.Bytes()
}
