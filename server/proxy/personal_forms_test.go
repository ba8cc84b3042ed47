package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
)

// Whatever a user asks for, and in whatever form, no byte of a namespace is sent that the server does not allow to the
// user, and the objects of the others are.
func TestPersonalForms(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada := r.user("ada")
	for _, namespace := range inhabited {
		label := "hidden"
		if namespace == "a" || namespace == "b" {
			label = "shown"
		}
		for i := range 3 {
			r.write(namespace, fmt.Sprint("m", i), label)
		}
	}
	r.grant("ada", "a")
	r.grant("ada", "b")
	r.sees(ada, 2)
	forms := map[string]string{
		"JSON":                 "application/json",
		"protobuf":             "application/vnd.kubernetes.protobuf",
		"metadata as JSON":     "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"metadata as protobuf": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	}
	const watching = "&watch=1&timeoutSeconds=1"
	for _, c := range []struct {
		query string
		shown bool // the answer has objects
	}{
		{"?resourceVersion=0", true}, {"?", true}, {"?limit=2", true}, {"?limit=500&resourceVersion=0", true},
		{"?labelSelector=l%3Dhidden", false}, {"?labelSelector=l+in+(hidden,shown)", true},
		{"?labelSelector=l%3Dhidden&limit=1", false},
		{"?fieldSelector=metadata.namespace%3Dab", false}, {"?fieldSelector=metadata.namespace%3Da", true},
		{"?fieldSelector=metadata.name%3Dm0", true}, {"?fieldSelector=metadata.name%3Dm0,metadata.namespace%3Dab", false},
		{"?fieldSelector=metadata.namespace!%3Da,metadata.namespace!%3Db", false},
		{"?resourceVersion=0" + watching, true}, {"?" + watching, true},
		{"?resourceVersion=0&fieldSelector=metadata.name%3Dm0" + watching, true},
		{"?resourceVersion=0&fieldSelector=metadata.namespace%3Dab" + watching, false},
		{"?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true" + watching, true},
	} {
		for form, accept := range forms {
			t.Run(form+c.query, func(t *testing.T) {
				t.Parallel()
				accept := accept
				if strings.Contains(c.query, "watch") {
					accept = strings.Replace(accept, "MetadataList", "Metadata", 1)
				}
				response := r.request(t.Context(), r.replicas[0].serve.URL, ada, configMaps+c.query, "Accept", accept)
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil || response.StatusCode != http.StatusOK {
					t.Fatalf("%d %v: %s", response.StatusCode, err, body)
				}
				judgeForm(t, body, c.shown)
			})
		}
		if !strings.Contains(c.query, "watch") {
			continue
		}
		t.Run("WebSocket"+c.query, func(t *testing.T) {
			t.Parallel()
			config, err := websocket.NewConfig(strings.Replace(r.replicas[0].serve.URL, "http://", "ws://", 1)+configMaps+
				c.query, "http://localhost")
			if err != nil {
				t.Fatal(err)
			}
			config.Header.Set("Authorization", "Bearer "+ada)
			config.Header.Set("User-Agent", "Mozilla/5.0 (X11)")
			connection, err := websocket.DialConfig(config)
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			var all []byte
			for {
				var message []byte
				if err := websocket.Message.Receive(connection, &message); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				all = append(all, message...)
			}
			judgeForm(t, all, c.shown)
		})
	}
	// the server would indent these
	for _, query := range []string{"?", "?pretty=true", "?" + watching, "?pretty=true" + watching} {
		for _, agent := range []string{"Mozilla/5.0 (X11)", "curl/8.5.0", "Wget/1.24", "other"} {
			t.Run(agent+query, func(t *testing.T) {
				t.Parallel()
				response := r.request(t.Context(), r.replicas[0].serve.URL, ada, configMaps+query, "User-Agent", agent)
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil || response.StatusCode != http.StatusOK {
					t.Fatalf("%d %v: %s", response.StatusCode, err, body)
				}
				judgeForm(t, body, true)
			})
		}
	}
	for _, path := range []string{
		"/api/v1/namespaces?fieldSelector=metadata.name%3Dab", "/api/v1/namespaces?fieldSelector=metadata.name%3Dab&limit=1",
		"/api/v1/namespaces?fieldSelector=metadata.name!%3Da,metadata.name!%3Db",
		"/api/v1/namespaces?labelSelector=kubernetes.io%2Fmetadata.name%3Dab",
	} {
		if got := r.get(0, ada, path); got.code != http.StatusOK || len(got.list.Items) > 0 {
			t.Errorf("%s: %d %v", path, got.code, got.names())
		}
	}
}

func judgeForm(t *testing.T, body []byte, shown bool) {
	t.Helper()
	if bytes.Contains(body, []byte("hidden")) {
		t.Errorf("what is hidden is sent: %s", body)
	}
	if is := bytes.Contains(body, []byte("shown")); is != shown {
		t.Errorf("objects are sent: %v, want %v: %s", is, shown, body)
	}
}

// The number of objects that remain behind a page, and the state of an earlier revision, are those of the namespaces
// that the user may read.
func TestPersonalPagesAndPast(t *testing.T) {
	t.Parallel()
	r := newPersonalRig(t, 1, func(*Config) {})
	ada := r.user("ada")
	r.grant("ada", "a")
	r.grant("ada", "b")
	r.sees(ada, 2)
	before := r.get(0, ada, configMaps).list.Metadata.ResourceVersion
	exactly := func(revision string) string {
		return configMaps + "?resourceVersionMatch=Exact&resourceVersion=" + url.QueryEscape(revision)
	}
	page := r.get(0, ada, configMaps+"?limit=1").list.Metadata
	all := len(r.get(0, ada, exactly(page.ResourceVersion)).list.Items)
	if rest := page.RemainingItemCount; rest == nil || *rest != int64(all)-1 {
		t.Errorf("%v objects remain of %d", rest, all)
	}
	r.write("a", "m9", "0")
	r.write("ab", "m9", "0")
	r.until("the objects are in lists", func() bool { return len(r.get(0, ada, configMaps).names()) == 7 })
	for _, query := range []string{"", "&limit=500"} {
		r.want(r.get(0, ada, exactly(before)+query), "", "a", "b")
	}

	// A namespace that is granted is in the past, too, as its own list is.
	r.grant("ada", "ab")
	r.sees(ada, 3)
	r.want(r.get(0, ada, exactly(before)), "", "a", "ab", "b")
	r.revoke("ada", "ab")
	r.sees(ada, 2)
	r.want(r.get(0, ada, exactly(before)), "", "a", "b")
}
