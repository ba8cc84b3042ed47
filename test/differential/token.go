package differential

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/url"
)

// token is a continue token and the list that it continues.
type token struct {
	path     string
	selector url.Values
	value    string
}

// tokens requests first pages and stores their continue tokens. Those of earlier phases
// stay: they are for older revisions, or expired.
func (g *Generator) tokens(ctx context.Context) error {
	for _, r := range append(asked, g.world.kinds...) {
		for range 3 {
			path := g.collection(r)
			selector := url.Values{}
			if g.chance(3) {
				g.labels(selector)
			}
			options := url.Values{"limit": {fmt.Sprint(1 + g.random.IntN(6))}}
			for name, values := range selector {
				options[name] = values
			}
			answer := g.world.theirs.Ask(ctx, Request{Path: path, Options: options})
			page, err := answer.page()
			if err == nil && page.Continue != "" {
				g.continueTokens = append(g.continueTokens, token{path, selector, page.Continue})
			}
			if answer.Status == 0 {
				return fmt.Errorf("%s: %s", path, answer.Incomplete)
			}
		}
	}
	return nil
}

// forged is a token that no server has made.
func (g *Generator) forged() string {
	encode := base64.RawURLEncoding.EncodeToString
	start := pick(g.random, "one/pod-03\\u0000", "pod-03\\u0000", "two/widget-01\\u0000", "gadget-02\\u0000", "zzz", "a")
	return pick(g.random,
		"garbage", "%%%", "YQ", encode([]byte("{}")), encode([]byte(`{"v":"meta.k8s.io/v1"}`)), encode([]byte(`null`)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":-1,"start":"%s"}`, start)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":-1,"start":"%s"}`, start)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":0,"start":"%s"}`, start)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":"%s"}`, g.past(), start)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":""}`, g.world.revision)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":"../../secrets/"}`, g.world.revision)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%d,"start":"/%s"}`, g.world.revision, start)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v2","rv":%d,"start":"%s"}`, g.world.revision, start)),
		encode(fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":"%d","start":"%s"}`, g.world.revision, start)),
	)
}

func pick[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }
