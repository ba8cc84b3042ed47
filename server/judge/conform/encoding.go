package conform

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

func encodesSame(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 5, func(int) map[string]string { return map[string]string{"color": "red"} },
		"value"); err != nil {
		return outcome{}, err
	}
	want, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	accepted := []string{asTable, asMetadata}
	if s.protobuf {
		accepted = append(accepted, asProtobuf)
	}
	result := kept
	for _, accept := range accepted {
		a, err := s.do(ctx, http.MethodGet, "", query("resourceVersion", want.revision.String(), "resourceVersionMatch",
			"Exact"), accept, nil)
		if err != nil {
			return outcome{}, err
		}
		if a.code != http.StatusOK {
			result = result.and(a.declines(accept + ", or 406"))
			continue
		}
		if accept == asProtobuf {
			if a.body, err = jsonOf(a.body); err != nil {
				return broken("protobuf", err.Error()), nil
			}
		}
		got, err := s.parseList(a.body)
		if err != nil {
			return broken(accept, err.Error()), nil
		}
		required := want
		if accept != asProtobuf {
			required = withoutValues(want)
		}
		one := sameState(required, got)
		if one.verdict != Kept {
			one.facts[0] = accept + ": " + one.facts[0]
		}
		result = result.and(one)
	}
	return result, nil
}

// withoutValues returns a list as its metadata has it.
func withoutValues(l *listed) *listed {
	without := *l
	without.items = nil
	for _, o := range l.items {
		metadata := *o
		metadata.value = ""
		without.items = append(without.items, &metadata)
	}
	return &without
}

func encodesCBOR(ctx context.Context, s *subject) (outcome, error) {
	if _, err := s.fill(ctx, 5, noLabels, "value"); err != nil {
		return outcome{}, err
	}
	want, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	a, err := s.do(ctx, http.MethodGet, "", query("resourceVersion", want.revision.String(), "resourceVersionMatch",
		"Exact"), asCBOR, nil)
	if err != nil {
		return outcome{}, err
	}
	if a.code != http.StatusOK {
		return a.declines("CBOR, or 406"), nil
	}
	var decoded any
	if err := direct.Unmarshal(a.body, &decoded); err != nil {
		return broken("CBOR", err.Error()), nil
	}
	inJSON, err := json.Marshal(decoded)
	if err != nil {
		return broken("CBOR of an object", err.Error()), nil
	}
	got, err := s.parseList(inJSON)
	if err != nil {
		return broken("CBOR of a list", err.Error()), nil
	}
	return sameState(want, got), nil
}

func encodesEventsSame(ctx context.Context, s *subject) (outcome, error) {
	start, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	want, err := s.story(ctx)
	if err != nil {
		return outcome{}, err
	}
	accepted := []string{asTable, asMetadataEvents}
	if s.protobuf {
		accepted = append(accepted, asProtobuf)
	}
	result := kept
	for _, accept := range accepted {
		w, a, err := s.watchAs(ctx, query("resourceVersion", start.revision.String()), accept)
		if err != nil {
			return outcome{}, err
		}
		if w == nil {
			result = result.and(a.declines("a watch as " + accept + ", or 406"))
			continue
		}
		required := want
		if accept != asProtobuf {
			required = withoutContent(want)
		}
		one, err := w.expect(ctx, required...)
		w.stop()
		if err != nil {
			return outcome{}, err
		}
		if one.verdict != Kept {
			one.facts[0] = accept + ": " + one.facts[0]
		}
		result = result.and(one)
	}
	return result, nil
}

// withoutContent returns events whose contents are not compared.
func withoutContent(all []expectation) []expectation {
	without := slices.Clone(all)
	for i := range without {
		without[i].content = ""
	}
	return without
}

// large is more than a server sends uncompressed, in bytes: kube-apiserver compresses from 128 KiB on.
const large = 200 << 10

func compressesSame(ctx context.Context, s *subject) (outcome, error) {
	const n = 25
	if _, err := s.fill(ctx, n, noLabels, strings.Repeat("v", large/n)); err != nil {
		return outcome{}, err
	}
	start, err := s.mustList(ctx, nil)
	if err != nil {
		return outcome{}, err
	}
	var bodies [2][]byte
	for i, encoding := range []string{"identity", "gzip"} {
		response, a, err := s.stream(ctx, query("resourceVersion", start.revision.String(), "resourceVersionMatch", "Exact"),
			http.Header{"Accept": {asJSON}, "Accept-Encoding": {encoding}})
		if err != nil {
			return outcome{}, err
		}
		if response == nil {
			return a.declines("the state to compare with, or 410"), nil
		}
		body := io.Reader(response.Body)
		if encoding == "gzip" {
			if response.Header.Get("Content-Encoding") != "gzip" {
				response.Body.Close()
				return notOffered("the server does not compress a list of " + fmt.Sprint(len(bodies[0])) + " bytes"), nil
			}
			unzipped, err := gzip.NewReader(response.Body)
			if err != nil {
				response.Body.Close()
				return broken("gzip", err.Error()), nil
			}
			body = unzipped
		}
		bodies[i], err = io.ReadAll(io.LimitReader(body, maxBody))
		response.Body.Close()
		if err != nil {
			return broken("a whole body", err.Error()), nil
		}
	}
	if !bytes.Equal(bodies[0], bodies[1]) {
		return broken(fmt.Sprintf("the %d bytes of the plain list", len(bodies[0])), fmt.Sprintf("%d bytes", len(bodies[1]))),
			nil
	}
	return kept, nil
}
