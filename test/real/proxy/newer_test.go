package proxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/server/proxy"
)

// fieldsOfNewer are members that no version of Kubernetes has. Neither their numbers nor their order are as Go would
// write them; strings are, as any API server writes them.
const fieldsOfNewer = `"zone":{"b":1.50,"a":[1e3,null,"\u003c\u0026\u003e\u2028"]},`

// newNewer starts a server that answers what another one answers, with objects that have fields that our types do not
// know: as of a version of Kubernetes that is newer than our libraries. There is no such version to test with.
func newNewer(t testing.TB, server *rest.Config) *httptest.Server {
	to, err := url.Parse(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(server))
	if err != nil {
		t.Fatal(err)
	}
	newer := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.SetURL(to)
			q.Out.Header.Del("Accept-Encoding")
		},
		Transport: transport, FlushInterval: -1, ModifyResponse: renew,
	})
	t.Cleanup(func() {
		newer.CloseClientConnections()
		newer.Close()
	})
	return newer
}

// renew adds the fields to the objects of a response, unless it has their metadata only.
func renew(response *http.Response) error {
	media := response.Header.Get("Content-Type")
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Request.URL.Path, "/api/v1/") ||
		strings.Contains(response.Request.Header.Get("Accept"), "as=") {
		return nil
	}
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	isJSON, body := strings.Contains(media, "json"), response.Body
	if response.Request.URL.Query().Get("watch") != "" {
		reader, writer := io.Pipe()
		response.Body = &renewed{reader, body}
		with := renewFrame
		if isJSON {
			with = renewJSON
		}
		go func() { writer.CloseWithError(renewFrames(writer, body, media, with)) }()
		return nil
	}
	whole, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	with := renewEnvelope
	if isJSON {
		with = renewJSON
	}
	response.Body = &renewed{io.NopCloser(strings.NewReader(with(string(whole)))), body}
	return nil
}

// renewFrames copies the frames of a watch until its end.
func renewFrames(to io.Writer, body io.Reader, media string, with func(string) string) error {
	for frames := bufio.NewReader(body); ; {
		frame, err := readFrame(frames, media)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(to, with(frame)); err != nil {
			return err
		}
	}
}

// renewed is a body that closes that which it was made of, too.
type renewed struct {
	io.ReadCloser
	of io.Closer
}

func (r *renewed) Close() error {
	r.ReadCloser.Close()
	return r.of.Close()
}

// renewJSON adds the fields before the metadata of each object, which begins with the name. Those of lists and
// bookmarks have none.
func renewJSON(text string) string {
	const metadata = `"metadata":{"name":`
	return strings.ReplaceAll(text, metadata, fieldsOfNewer+metadata)
}

// renewFrame adds a field to the object of a protobuf event, unless that is a bookmark.
func renewFrame(frame string) string {
	event := rewrite([]byte(frame[4:]), 2, func(extension []byte) []byte {
		return rewrite(extension, 1, func(object []byte) []byte {
			if strings.Contains(frame[4:20], "BOOKMARK") {
				return object
			}
			return []byte(renewEnvelope(string(object)))
		})
	})
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(event)))) + string(event)
}

// renewEnvelope adds a field to the object, or to the objects of the list, of a protobuf document.
func renewEnvelope(text string) string {
	prefix := []byte("k8s\x00")
	document, found := bytes.CutPrefix([]byte(text), prefix)
	if !found {
		panic(fmt.Sprintf("no protobuf of Kubernetes: %.20q", text))
	}
	isList := false
	rewrite(document, 1, func(typeMeta []byte) []byte {
		isList = bytes.HasSuffix(typeMeta, []byte("List"))
		return typeMeta
	})
	add := func(object []byte) []byte {
		return protowire.AppendString(protowire.AppendTag(object[:len(object):len(object)], 1000, protowire.BytesType),
			"of a newer version")
	}
	return string(append(prefix, rewrite(document, 2, func(raw []byte) []byte {
		if isList {
			return rewrite(raw, 2, add)
		}
		return add(raw)
	})...))
}

// rewrite returns a message of protobuf with other values of one field.
func rewrite(message []byte, field protowire.Number, with func([]byte) []byte) []byte {
	var out []byte
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		size := protowire.ConsumeFieldValue(number, kind, message[max(tag, 0):])
		if tag < 0 || size < 0 {
			panic(fmt.Sprintf("no message: %.20q", message))
		}
		whole := message[:tag+size]
		message = message[tag+size:]
		if number != field || kind != protowire.BytesType {
			out = append(out, whole...)
			continue
		}
		value, _ := protowire.ConsumeBytes(whole[tag:])
		out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), with(value))
	}
	return out
}

// Fields that our types do not know, of built-in resources, are in the proxy's answers as in the server's, byte for
// byte.
func TestFieldsOfNewerServers(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig, config *proxy.Config) {
		r.host = newNewer(r, config.Server).URL
		server := rest.CopyConfig(config.Server)
		server.Host = r.host
		config.Server = server
	})
	r.define()
	r.fill()
	for accept, field := range map[string]string{inJSON: fieldsOfNewer, inProtobuf: "of a newer version"} {
		if n := strings.Count(r.behind(maps, "Accept", accept).body, field); n != 20 {
			t.Fatalf("%s: %d objects have the new field", accept, n)
		}
	}
	r.compareEncodings()
}
