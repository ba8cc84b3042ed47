package proxy

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
)

// expireIn replaces the reader's token by one that the server accepts for this long, beside what it remembers.
func (r *rig) expireIn(d time.Duration) {
	r.Helper()
	var claims map[string]any
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(r.token, ".")[1])
	r.must(err)
	r.must(json.Unmarshal(payload, &claims))
	claims["exp"] = time.Now().Add(d - jwt.DefaultLeeway).Unix()
	pem, err := os.ReadFile(r.server.ServiceAccountKey())
	r.must(err)
	key, err := keyutil.ParsePrivateKeyPEM(pem)
	r.must(err)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, nil)
	r.must(err)
	r.token, err = jwt.Signed(signer).Claims(claims).Serialize()
	r.must(err)
}

// A token that expires is refused as by the server, which remembers it for 10 s, once the proxy's review is as old. A
// watch that it has opened goes on at the server, until a restart ends it, and ends at the proxy, which no restart
// ends.
func TestExpiredTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(1)
	r.waitCached(maps + "?resourceVersion=0")
	r.expireIn(30 * time.Second) // the requests until the first refusal is awaited take milliseconds
	if at, by := r.behind(maps), r.proxy(maps+"?resourceVersion=0"); at.code != http.StatusOK || by.code != http.StatusOK {
		t.Fatalf("the token is not accepted: %d by the server, %d by the proxy", at.code, by.code)
	}
	newest := map[string]*bufio.Reader{}
	for name, open := range map[string]func() *http.Response{
		"server": func() *http.Response { return r.open(t.Context(), r.direct, r.server.Config().Host, maps+"?watch=1") },
		"proxy":  func() *http.Response { return r.open(t.Context(), r.proxied, r.url, maps+"?watch=1&resourceVersion=0") },
	} {
		watch := open()
		defer watch.Body.Close()
		if watch.StatusCode != http.StatusOK {
			t.Fatalf("a watch at the %s: %s", name, watch.Status)
		}
		newest[name] = bufio.NewReader(watch.Body)
	}
	r.eventually("the server refuses the token", func() bool { return r.behind(maps).code == http.StatusUnauthorized })
	r.eventually("the proxy refuses the token", func() bool {
		return r.proxy(maps+"?resourceVersion=0").code == http.StatusUnauthorized
	})
	if code := r.proxy(maps + "?watch=1&resourceVersion=0").code; code != http.StatusUnauthorized {
		t.Errorf("a watch by the expired token is answered with %d", code)
	}
	if _, err := io.Copy(io.Discard, newest["proxy"]); err != nil {
		t.Errorf("the watch at the proxy: %v", err)
	}
	_, err := r.admin.CoreV1().ConfigMaps("default").Patch(t.Context(), "map-000", types.MergePatchType,
		[]byte(`{"data":{"after":"the expiry"}}`), metav1.PatchOptions{})
	r.must(err)
	for {
		event, err := newest["server"].ReadString('\n')
		if err != nil {
			t.Fatalf("the watch at the server: %v", err)
		}
		if strings.Contains(event, "the expiry") {
			break
		}
	}
}
