package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keepwatch/keepwatch/test/differential"
	"github.com/keepwatch/keepwatch/test/peer"
)

// configMaps is etcd's prefix of the config maps.
const configMaps = "/registry/configmaps/"

// objectReads counts the reads of config maps in etcd that read objects.
func (m *modes) objectReads() (n int) {
	for _, r := range m.etcd.Reads(configMaps) {
		if !r.CountOnly {
			n++
		}
	}
	return n
}

// exactLists lists each of the last revisions. None of the lists is read from etcd.
func (m *modes) exactLists() {
	m.namespace("exact")
	state, states := map[string]string{}, map[string]map[string]string{}
	record := func(o *corev1.ConfigMap) {
		state[o.Name] = o.ResourceVersion
		states[o.ResourceVersion] = maps.Clone(state)
	}
	for i := range 30 {
		o := m.create("exact", fmt.Sprintf("o-%d", i), 1)
		record(o)
		if i%2 == 0 {
			o.Data["text"] = "y"
			changed, err := m.client.CoreV1().ConfigMaps("exact").Update(m.Context(), o, metav1.UpdateOptions{})
			if err != nil {
				m.Fatal(err)
			}
			record(changed)
		}
	}
	before := m.objectReads()
	for revision, want := range states {
		for _, limit := range []string{"", "7"} {
			got, token := map[string]string{}, ""
			for page := 0; page == 0 || token != ""; page++ {
				options := url.Values{"resourceVersion": {revision}, "resourceVersionMatch": {"Exact"}}
				if limit != "" {
					options.Set("limit", limit)
				}
				if token != "" {
					options = url.Values{"limit": {limit}, "continue": {token}}
				}
				answer := m.keepwatch.Ask(m.Context(), request("/api/v1/namespaces/exact/configmaps", options, "application/json"))
				var list corev1.ConfigMapList
				if err := json.Unmarshal(answer.Body, &list); err != nil || answer.Status != http.StatusOK ||
					list.ResourceVersion != revision {
					m.Fatalf("at %s: %d %s", revision, answer.Status, answer.Body)
				}
				for _, o := range list.Items {
					got[o.Name] = o.ResourceVersion
				}
				token = list.Continue
			}
			if !maps.Equal(got, want) {
				m.Errorf("at %s: %v, want %v", revision, got, want)
			}
		}
	}
	if n := m.objectReads() - before; n > 0 {
		m.Errorf("%d reads of etcd for lists of %d revisions", n, len(states))
	}
}

// consistentLists makes many clients wait for one read of etcd's newest revision. They share the next
// one.
func (m *modes) consistentLists() {
	const clients = 60
	release := m.etcd.Hold(configMaps)
	defer release()
	executing := func() float64 {
		return m.metrics(m.ours).Sum("apiserver_flowcontrol_current_executing_requests", peer.Labels{"flow_schema": "exempt"})
	}
	idle := executing()
	before, objects := len(m.etcd.Reads(configMaps)), m.objectReads()
	var waiting sync.WaitGroup
	answers := make([]differential.Answer, clients)
	for i := range clients {
		waiting.Go(func() {
			answers[i] = m.keepwatch.Ask(m.Context(), request("/api/v1/namespaces/exact/configmaps", nil, "application/json"))
		})
	}
	m.eventually("all clients wait", func() bool { return executing() >= idle+clients })
	release()
	waiting.Wait()
	reads := len(m.etcd.Reads(configMaps)) - before
	m.Logf("%d lists, %d reads of etcd", clients, reads)
	if reads == 0 || reads > clients/4 { // one or two, those of the counts, and of a client that was late
		m.Errorf("%d lists made %d reads of etcd", clients, reads)
	}
	if n := m.objectReads() - objects; n > 0 {
		m.Errorf("%d of the lists were read from etcd", n)
	}
	for _, a := range answers {
		if a.Status != http.StatusOK || string(a.Body) != string(answers[0].Body) {
			m.Errorf("a list is answered %d %s", a.Status, a.Incomplete)
		}
	}
}
