package proxy

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
)

// Watches over WebSockets are the server's, in both encodings, with a token in a header or, as browsers send it, as a
// subprotocol.
func TestWebSocketWatches(t *testing.T) {
	r := newRig(t)
	r.create(3)
	r.waitCached(maps + "?resourceVersion=0")
	r.waitCachedAs(maps+"?resourceVersion=0", inProtobuf)
	for name, c := range map[string]struct {
		accept    string
		inBrowser bool
	}{
		"JSON": {accept: inJSON}, "protobuf": {accept: inProtobuf}, "as a browser": {inBrowser: true},
	} {
		t.Run(name, func(t *testing.T) {
			query := maps + "?watch=1&resourceVersion=0&labelSelector=half%3D0"
			dial := func(config *rest.Config) *websocket.Conn {
				location, err := url.Parse(strings.Replace(config.Host, "https://", "wss://", 1) + query)
				r.must(err)
				secure, err := rest.TLSConfigFor(config)
				r.must(err)
				secure.NextProtos = nil
				ws, err := websocket.NewConfig(location.String(), "https://localhost")
				r.must(err)
				ws.TlsConfig = secure
				if c.inBrowser {
					ws.Protocol = []string{"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(r.token)), "base64.binary.k8s.io"}
				} else {
					ws.Header.Set("Authorization", "Bearer "+r.token)
					ws.Header.Set("Accept", c.accept)
				}
				connection, err := websocket.DialConfig(ws)
				r.must(err)
				return connection
			}
			ours, theirs := dial(r.Config()), dial(r.server.Config())
			defer ours.Close()
			defer theirs.Close()
			for i := range 3 {
				if i == 2 {
					r.patch(maps, "map-000", `{"data":{"name":"`+name+`"}}`)
				}
				var got, want []byte
				r.must(websocket.Message.Receive(ours, &got))
				r.must(websocket.Message.Receive(theirs, &want))
				if string(got) != string(want) || ours.PayloadType != theirs.PayloadType {
					t.Errorf("message %d: %.300q\nthe server's: %.300q", i, got, want)
				}
			}
		})
	}
}
