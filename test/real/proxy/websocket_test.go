package proxy

import (
	"cmp"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
)

// dial opens a watch over a WebSocket. Without encodings the token is a subprotocol.
func (r *rig) dial(config *rest.Config, query, accept string) *websocket.Conn {
	r.Helper()
	ws := r.socketConfig(config, query)
	if accept == "" {
		ws.Protocol = []string{"base64url.bearer.authorization.k8s.io." +
			base64.RawURLEncoding.EncodeToString([]byte(r.token)), "base64.binary.k8s.io"}
	} else {
		ws.Header.Set("Authorization", "Bearer "+r.token)
		ws.Header.Set("Accept", accept)
	}
	connection, err := websocket.DialConfig(ws)
	r.must(err)
	r.Cleanup(func() { connection.Close() })
	return connection
}

func (r *rig) socketConfig(config *rest.Config, query string) *websocket.Config {
	r.Helper()
	location, err := url.Parse(strings.Replace(config.Host, "https://", "wss://", 1) + query)
	r.must(err)
	secure, err := rest.TLSConfigFor(config)
	r.must(err)
	secure.NextProtos = nil
	ws, err := websocket.NewConfig(location.String(), "https://localhost")
	r.must(err)
	ws.TlsConfig = secure
	return ws
}

// receive returns the next message.
func (r *rig) receive(from *websocket.Conn) string {
	r.Helper()
	var message []byte
	r.must(websocket.Message.Receive(from, &message))
	return string(message)
}

// Watches over WebSockets are the server's, in both encodings, with a token in a header or, as browsers send it, as a
// subprotocol.
func TestWebSocketWatches(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	r.waitCachedAs(maps+"?resourceVersion=0", inProtobuf)
	last := ""
	for name, accept := range map[string]string{"JSON": inJSON, "protobuf": inProtobuf, "as a browser": ""} {
		r.eventually("the cache has the last write", func() bool { // each representation follows the server by itself
			return strings.Contains(r.proxy(maps+"?resourceVersion=0", "Accept", cmp.Or(accept, inJSON)).body, last)
		})
		last = name
		t.Run(name, func(t *testing.T) {
			query := maps + "?watch=1&resourceVersion=0&labelSelector=half%3D0"
			ours, theirs := r.dial(r.Config(), query, accept), r.dial(r.server.Config(), query, accept)
			for i := range 3 {
				if i == 2 {
					r.patch(maps, "map-000", `{"data":{"name":"`+name+`"}}`)
				}
				got, want := r.receive(ours), r.receive(theirs)
				if got != want || ours.PayloadType != theirs.PayloadType {
					t.Errorf("message %d: %.300q\nthe server's: %.300q", i, got, want)
				}
			}
		})
	}
}

// A watch over a WebSocket in JSON is answered from memory: it stays open while the server is killed and restarted. One
// that cannot begin is answered before the handshake, as by the server.
func TestWebSocketWatchesInAnOutage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(2)
	r.waitCached(maps + "?resourceVersion=0")
	watch := r.dial(r.Config(), maps+"?watch=1&resourceVersion=0", inJSON)
	for range 2 {
		if got := r.receive(watch); !strings.HasPrefix(got, `{"type":"ADDED"`) || !strings.HasSuffix(got, "\n") {
			t.Errorf("%.200q", got)
		}
	}
	r.server.Kill()
	r.must(r.server.Restart(t.Context()))
	r.patch(maps, "map-000", `{"data":{"name":"after"}}`)
	if got := r.receive(watch); !strings.HasPrefix(got, `{"type":"MODIFIED"`) || !strings.Contains(got, `"after"`) {
		t.Errorf("after the restart: %.200q", got)
	}
	for _, query := range []string{"?watch=1&resourceVersion=a", "?watch=1&labelSelector=%3D%3D"} {
		for name, config := range map[string]*rest.Config{"the proxy": r.Config(), "the server": r.server.Config()} {
			ws := r.socketConfig(config, maps+query)
			ws.Header.Set("Authorization", "Bearer "+r.token)
			if _, err := websocket.DialConfig(ws); err == nil || !strings.Contains(err.Error(), "bad status") {
				t.Errorf("%s answers %s: %v", name, query, err)
			}
		}
	}
	r.must(websocket.Message.Send(watch, strings.Repeat("x", 4<<10)))
	r.patch(maps, "map-001", `{"data":{"name":"unheard"}}`)
	if got := r.receive(watch); !strings.Contains(got, `"unheard"`) {
		t.Errorf("after a message of the client: %.200q", got)
	}
	r.must(websocket.Message.Send(watch, strings.Repeat("x", 5<<10)))
	var message []byte
	if err := websocket.Message.Receive(watch, &message); err == nil {
		t.Errorf("after a long message of the client: %.200q", message)
	}
}
