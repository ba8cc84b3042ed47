package validation

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/keepwatch/keepwatch/test/peer"
)

// stories are the writes of one Service, one after the other: what it is created with, and then what replaces its spec,
// as by a client that does not read first. + changes only the given fields of the stored spec.
var stories = [][]string{
	{`{ports: [{port: 80}]}`, `{ports: [{port: 81}]}`, `+{clusterIP: ""}`, `+{clusterIPs: []}`,
		`+{clusterIP: "", clusterIPs: []}`},
	{`{ports: [{port: 80}]}`, `+{clusterIP: 10.0.0.101}`, `+{clusterIP: None}`, `+{clusterIPs: [10.0.0.102]}`},
	{`{ports: [{port: 80}]}`, `{type: ExternalName, externalName: a.example.com, ports: [{port: 80}]}`,
		`{ports: [{port: 80}]}`},
	{`{ports: [{port: 80}]}`, `+{type: ExternalName, externalName: a.example.com}`, `+{type: NodePort}`,
		`+{type: ClusterIP}`, `+{type: LoadBalancer}`, `+{type: ExternalName}`},
	{`{type: ExternalName, externalName: a.example.com}`, `+{clusterIP: 10.0.0.103}`, `+{ipFamilies: [IPv4]}`,
		`+{ipFamilyPolicy: SingleStack}`},
	{`{type: ExternalName, externalName: a.example.com, clusterIP: None}`},
	{`{type: ExternalName, externalName: a.example.com}`, `{type: ClusterIP, clusterIP: 10.0.0.104, ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.151, ports: [{port: 80}]}`, `+{ports: [{port: 90}]}`},
	{`{clusterIP: 10.0.0.1, ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.0, ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.255.255, ports: [{port: 80}]}`},
	{`{clusterIP: 192.168.7.7, ports: [{port: 80}]}`},
	{`{clusterIP: "fd00::1", ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.300, ports: [{port: 80}]}`},
	{`{clusterIP: 010.0.0.30, ports: [{port: 80}]}`},
	{`{clusterIP: "::ffff:10.0.0.30", ports: [{port: 80}]}`},
	{`{clusterIPs: [10.0.0.152], ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.153, clusterIPs: [10.0.0.154], ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.155, clusterIPs: [10.0.0.155, 10.0.0.156], ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.157, clusterIPs: [10.0.0.157, "fd00::7"], ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.158, clusterIPs: [10.0.0.158, "fd00::8", "fd00::9"], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`},
	{`{clusterIP: None, clusterIPs: [None, None], ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.159, ipFamilies: [IPv6], ports: [{port: 80}]}`},
	{`{ipFamilies: [IPv6], ports: [{port: 80}]}`},
	{`{ipFamilies: [IPv4, IPv4], ports: [{port: 80}]}`},
	{`{ipFamilies: [IPv5], ports: [{port: 80}]}`},
	{`{ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}`},
	{`{ipFamilies: [IPv4, IPv6], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`},
	{`{ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}`},
	{`{ipFamilyPolicy: Own, ports: [{port: 80}]}`},
	{`{ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`, `+{ports: [{port: 81}]}`, `+{ipFamilyPolicy: SingleStack}`,
		`+{ipFamilyPolicy: RequireDualStack}`, `+{ipFamilies: [IPv6]}`},
	{`{clusterIP: None}`, `+{selector: {a: b}}`, `+{ipFamilyPolicy: SingleStack}`, `+{ipFamilies: [IPv6]}`,
		`+{clusterIP: ""}`, `+{clusterIP: 10.0.0.105}`},
	{`{clusterIP: None, selector: {a: b}}`, `{selector: {a: c}}`, `+{type: NodePort, ports: [{port: 80}]}`,
		`+{type: LoadBalancer, ports: [{port: 80}]}`},
	{`{clusterIP: None, ipFamilies: [IPv6]}`},
	{`{clusterIP: None, ipFamilies: [IPv6], ipFamilyPolicy: SingleStack}`, `+{ipFamilyPolicy: PreferDualStack}`},
	{`{clusterIP: None, type: NodePort, ports: [{port: 80}]}`},
	{`{clusterIP: None, type: LoadBalancer, ports: [{port: 80}]}`},

	{`{type: NodePort, ports: [{port: 80}]}`, `{type: NodePort, ports: [{port: 81}]}`,
		`{type: NodePort, ports: [{name: a, port: 81}, {name: b, port: 82}]}`, `+{type: ClusterIP}`, `+{type: NodePort}`},
	{`{type: NodePort, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]}`,
		`{type: NodePort, ports: [{name: b, port: 53, protocol: UDP}, {name: a, port: 53}, {name: c, port: 54}]}`},
	{`{type: NodePort, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP, nodePort: 30001}]}`,
		`+{ports: [{name: a, port: 53, nodePort: 30002}]}`, `+{ports: [{name: a, port: 53, nodePort: 30001}]}`},
	{`{type: NodePort, ports: [{name: a, port: 53, nodePort: 30003}, {name: b, port: 53, protocol: UDP, nodePort: 30004}]}`, `{type: ClusterIP, ports: [{name: a, port: 53, nodePort: 30003}]}`, `{type: ClusterIP, ports: [{name: a, port: 53, nodePort: 30005}]}`},
	{`{type: NodePort, ports: [{name: a, port: 53, nodePort: 30006}, {name: b, port: 54, nodePort: 30006}]}`},
	{`{type: NodePort, ports: [{name: a, port: 53, nodePort: 30007}, {name: b, port: 54, protocol: UDP, nodePort: 30007}]}`},
	{`{type: NodePort, ports: [{port: 80, nodePort: 29999}]}`},
	{`{type: NodePort, ports: [{port: 80, nodePort: 32768}]}`},
	{`{type: NodePort, ports: [{port: 80, nodePort: 30010}]}`}, // the next story wants it, too
	{`{type: NodePort, ports: [{port: 80, nodePort: 30010}]}`},
	{`{type: NodePort, ports: [{port: 80}]}`, `{type: NodePort, ports: [{port: 80, nodePort: 30010}]}`,
		`+{type: LoadBalancer}`, `+{type: ExternalName, externalName: a.example.com}`},
	{`{type: ClusterIP, ports: [{port: 80, nodePort: 30011}]}`},

	{`{type: LoadBalancer, ports: [{port: 80}]}`, `+{externalTrafficPolicy: Local}`,
		`{type: LoadBalancer, ports: [{port: 80}], externalTrafficPolicy: Local}`, `+{healthCheckNodePort: 30020}`,
		`+{externalTrafficPolicy: Cluster}`, `+{type: ClusterIP}`},
	{`{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30021, ports: [{port: 80}]}`,
		`+{type: NodePort}`, `+{type: ExternalName, externalName: a.example.com}`},
	{`{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30010, ports: [{port: 80}]}`},
	{`{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 80, ports: [{port: 80}]}`},
	{`{type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}]}`,
		`+{allocateLoadBalancerNodePorts: true}`, `+{type: ClusterIP}`},
	{`{type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{name: a, port: 80, nodePort: 30022}, {name: b, port: 81}]}`, `+{type: NodePort}`},
	{`{type: LoadBalancer, loadBalancerClass: example.com/a, ports: [{port: 80}]}`, `+{loadBalancerClass: example.com/b}`,
		`+{type: ClusterIP}`, `+{loadBalancerClass: example.com/c}`},
	{`{type: LoadBalancer, loadBalancerClass: a b, ports: [{port: 80}]}`},
	{`{type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/8, " 10.1.0.0/16 ", 10.0.0.1, 10.0.0.1/8], ports: [{port: 80}]}`},
	{`{loadBalancerSourceRanges: [10.0.0.0/8], allocateLoadBalancerNodePorts: true, loadBalancerClass: a, ports: [{port: 80}]}`},
	{`{healthCheckNodePort: 30023, externalTrafficPolicy: Local, ports: [{port: 80}]}`},
	{`{type: NodePort, externalTrafficPolicy: Own, ports: [{port: 80}]}`},

	{`{ports: [{port: 80}], externalIPs: [192.0.2.1]}`, `+{externalTrafficPolicy: Local}`, `+{externalIPs: []}`},
	{`{ports: [{port: 80}], externalIPs: [127.0.0.1, 0.0.0.0, 169.254.1.1, 224.0.0.1, a, 01.2.3.4]}`},
	{`{ports: [{port: 80}], sessionAffinity: ClientIP}`, `+{sessionAffinity: None}`,
		`+{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}`,
		`+{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 1}}}`},
	{`{ports: [{port: 80}], trafficDistribution: PreferClose}`, `+{trafficDistribution: PreferSameNode}`,
		`+{trafficDistribution: Own}`},
}

// dualStories are for servers with a range of each family.
var dualStories = [][]string{
	{`{ports: [{port: 80}]}`, `+{ipFamilyPolicy: PreferDualStack}`, `+{ports: [{port: 81}]}`, `+{ipFamilies: [IPv4]}`,
		`+{ipFamilyPolicy: SingleStack}`, `+{ipFamilyPolicy: RequireDualStack}`},
	{`{ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`, `+{ipFamilyPolicy: SingleStack}`,
		`+{ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack}`},
	{`{ipFamilyPolicy: RequireDualStack, ports: [{port: 80}]}`, `{ipFamilyPolicy: RequireDualStack, ports: [{port: 81}]}`,
		`+{clusterIPs: []}`, `+{ipFamilies: []}`, `+{type: ExternalName, externalName: a.example.com}`,
		`+{type: ClusterIP, ipFamilyPolicy: RequireDualStack}`},
	{`{ipFamilies: [IPv6], ports: [{port: 80}]}`, `+{ipFamilies: [IPv4]}`, `+{ipFamilies: [IPv6, IPv4]}`,
		`+{ipFamilies: [IPv6, IPv4], ipFamilyPolicy: RequireDualStack}`, `+{ipFamilies: [IPv6]}`,
		`+{ipFamilies: [IPv6], ipFamilyPolicy: SingleStack}`},
	{`{ipFamilies: [IPv6, IPv4], ports: [{port: 80}]}`},
	{`{ipFamilies: [IPv6, IPv4], ipFamilyPolicy: PreferDualStack, type: NodePort, ports: [{port: 80}]}`,
		`+{type: ClusterIP}`},
	{`{clusterIP: 10.0.0.20, clusterIPs: [10.0.0.20, "fd00::20"], ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.21, clusterIPs: [10.0.0.21, "fd00::21"], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`},
	{`{clusterIP: 10.0.0.22, ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`,
		`+{clusterIPs: [10.0.0.22, "fd00::22"]}`, `+{clusterIPs: [10.0.0.22]}`},
	{`{clusterIP: "fd00::23", ports: [{port: 80}]}`},
	{`{clusterIP: "fd00::24", ipFamilies: [IPv4], ports: [{port: 80}]}`},
	{`{clusterIP: "fd00:0::25", ports: [{port: 80}]}`},
	{`{clusterIP: "FD00::2A", ports: [{port: 80}]}`},
	{`{clusterIP: "fd01::1", ports: [{port: 80}]}`},
	{`{clusterIP: None}`, `+{ipFamilyPolicy: SingleStack}`, `+{ipFamilies: [IPv6]}`},
	{`{clusterIP: None, selector: {a: b}}`, `+{ipFamilyPolicy: PreferDualStack}`, `+{ipFamilyPolicy: SingleStack}`},
	{`{clusterIP: None, ipFamilies: [IPv6], selector: {a: b}}`, `+{selector: {}}`},
	{`{type: ExternalName, externalName: a.example.com}`,
		`{type: NodePort, ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`},
}

// Both servers give Services the same kinds of addresses, keep them, release them, and refuse the same wishes.
func TestAddressesOfServices(t *testing.T) {
	t.Run("one family", func(t *testing.T) { compareStories(t, sides(t), stories) })
	for _, ranges := range []string{"10.0.0.0/16,fd00::/112", "fd00::/112,10.0.0.0/16"} {
		t.Run(ranges, func(t *testing.T) {
			compareStories(t, sidesWith(t, ranges), dualStories)
		})
	}
}

// Both servers answer each status of a load balancer alike.
func TestStatusOfServices(t *testing.T) {
	both := sides(t)
	for i, c := range []struct{ spec, ingress string }{
		{`{type: LoadBalancer, ports: [{port: 80}]}`, `[{ip: 192.0.2.1}]`},
		{`{type: LoadBalancer, ports: [{port: 80}]}`, `[{ip: 192.0.2.1, ipMode: Proxy}, {hostname: a.example.com}]`},
		{`{type: LoadBalancer, ports: [{port: 80}]}`, `[{ip: 192.0.2.1, ipMode: Own}]`},
		{`{type: LoadBalancer, ports: [{port: 80}]}`, `[{hostname: a.example.com, ipMode: VIP}]`},
		{`{type: LoadBalancer, ports: [{port: 80}]}`,
			`[{ip: 192.0.2.300}, {ip: 010.0.0.1}, {hostname: 192.0.2.1}, {hostname: a_b}]`},
		{`{type: NodePort, ports: [{port: 80}]}`, `[{ip: 192.0.2.1}]`},
		{`{ports: [{port: 80}]}`, `[{hostname: a.example.com}]`},
		{`{type: ExternalName, externalName: a.example.com}`, `[]`},
	} {
		name := fmt.Sprintf("status-%d", i)
		var answers [2]string
		for j, side := range both {
			objects := client(side, "Service")
			created, err := objects.Create(t.Context(), object(t, "Service", name, "{spec: "+c.spec+"}"), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			changed := object(t, "Service", name, "{status: {loadBalancer: {ingress: "+c.ingress+"}}}")
			changed.SetResourceVersion(created.GetResourceVersion())
			changed.Object["spec"] = created.Object["spec"]
			if written, err := objects.UpdateStatus(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
				answers[j] = fmt.Sprint(answerOf(t, err))
			} else {
				answers[j] = fmt.Sprint(written.Object["status"])
			}
		}
		if d := diff.Diff(answers[0], answers[1]); d != "" {
			t.Errorf("%s %s (- kube-apiserver, + testserver):\n%s", c.spec, c.ingress, d)
		}
	}
}

// sidesWith returns clients of kube-apiserver and of keepwatch serve, with these ranges of cluster IPs.
func sidesWith(t *testing.T, ranges string) []*dynamic.DynamicClient {
	t.Helper()
	return clientsOf(t, peer.Kubernetes(t, "--service-cluster-ip-range", ranges).Config(),
		peer.Serve(t, "--service-cluster-ip-range", ranges).Config())
}

// compareStories writes the stories at both servers, and compares the answers. It returns how many writes were accepted
// and refused.
func compareStories(t *testing.T, both []*dynamic.DynamicClient, stories [][]string) (accepted, refused int) {
	for i, story := range stories {
		var answers [2][]string
		for j, side := range both {
			answers[j] = write(t, side, fmt.Sprintf("story-%d", i), story)
		}
		if d := diff.Diff(answers[0], answers[1]); d != "" {
			t.Errorf("%s (- kube-apiserver, + keepwatch):\n%s", strings.Join(story, "\n"), d)
		}
		for _, answer := range answers[0] {
			if strings.HasPrefix(answer, "map[") {
				accepted++
			} else {
				refused++
			}
		}
	}
	return accepted, refused
}

// Random writes of Services that want the same addresses are answered alike.
func TestRandomServices(t *testing.T) {
	random := seeded(t, 6)
	var drawn [][]string
	for range max(*stepsFlag/8, 1) {
		story := []string{begins[random.IntN(len(begins))]}
		for range 7 {
			story = append(story, randomSpec(random))
		}
		drawn = append(drawn, story)
	}
	accepted, refused := compareStories(t, sidesWith(t, "10.0.0.0/16,fd00::/112"), drawn)
	t.Logf("%d accepted, %d refused", accepted, refused)
	if least := (accepted + refused) / 10; accepted < least || refused < least {
		t.Error("too few of a kind")
	}
}

// begins are valid Services, of which some want the same addresses.
var begins = []string{
	`{ports: [{port: 80}]}`, `{clusterIP: None, selector: {a: b}}`, `{type: NodePort, ports: [{port: 80}]}`,
	`{type: LoadBalancer, ports: [{port: 80}]}`,
	`{ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}`, `{type: NodePort, ports: [{port: 80, nodePort: 30030}]}`,
	`{clusterIP: 10.0.0.30, ports: [{port: 80}]}`,
}

// randomFields are values of fields of a Service's spec. Most are valid, and few fit together.
var randomFields = map[string][]string{
	"type":         {"ClusterIP", "NodePort", "NodePort", "LoadBalancer", "LoadBalancer", "ExternalName"},
	"externalName": {"a.example.com"},
	"clusterIP":    {`""`, "None", "10.0.0.30", "10.0.0.31", "10.0.0.32", `"fd00::30"`, `"fd00::31"`},
	"clusterIPs": {"[]", "[None]", "[10.0.0.30]", "[10.0.0.31]", `[10.0.0.30, "fd00::30"]`,
		`[10.0.0.31, "fd00::31"]`, `["fd00::30"]`},
	"ipFamilies":     {"[]", "[IPv4]", "[IPv6]", "[IPv4, IPv6]", "[IPv6, IPv4]"},
	"ipFamilyPolicy": {"SingleStack", "PreferDualStack", "RequireDualStack", "null"},
	"ports": {"[{port: 80}]", "[{port: 80, nodePort: 30030}]", "[{port: 80, nodePort: 30031}]",
		"[{name: a, port: 53}, {name: b, port: 53, protocol: UDP}]",
		"[{name: a, port: 53, nodePort: 30032}, {name: b, port: 53, protocol: UDP}]",
		"[{name: b, port: 53, nodePort: 30033, protocol: UDP}, {name: a, port: 53, nodePort: 30032}]", "[]"},
	"selector":                      {"{a: b}", "{}"},
	"externalTrafficPolicy":         {"Local", "Cluster", `""`},
	"healthCheckNodePort":           {"30034", "30035", "0"},
	"allocateLoadBalancerNodePorts": {"true", "false", "null"},
	"loadBalancerClass":             {"example.com/a", "example.com/b", "null"},
	"sessionAffinity":               {"ClientIP", "None"},
	"externalIPs":                   {"[192.0.2.1]", "[]"},
}

// randomSpec returns a change of some fields, or a new spec.
func randomSpec(random *rand.Rand) string {
	fields := slices.Sorted(maps.Keys(randomFields))
	random.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	prefix := "+"
	fields = fields[:1+random.IntN(3)]
	if random.IntN(8) == 0 {
		prefix = ""
		fields = append(fields, "ports")
	}
	var parts []string
	for _, field := range slices.Compact(slices.Sorted(slices.Values(fields))) {
		values := randomFields[field]
		parts = append(parts, field+": "+values[random.IntN(len(values))])
	}
	if slices.Contains(parts, "type: ExternalName") {
		// kube-apiserver lets an update give an ExternalName Service a clusterIP, and then refuses every other update.
		parts = slices.DeleteFunc(parts, func(part string) bool { return strings.HasPrefix(part, "clusterIP") })
	}
	return prefix + "{" + strings.Join(parts, ", ") + "}"
}

// write makes the writes of a story, and returns the answers: errors, or specs with masked addresses.
func write(t *testing.T, side *dynamic.DynamicClient, name string, story []string) (answers []string) {
	t.Helper()
	objects := client(side, "Service")
	masks := map[any]string{}
	var stored *unstructured.Unstructured
	for _, text := range story {
		change, part := strings.CutPrefix(text, "+")
		o := object(t, "Service", name, "{spec: "+change+"}")
		var written *unstructured.Unstructured
		var err error
		switch {
		case stored == nil:
			written, err = objects.Create(t.Context(), o, metav1.CreateOptions{})
		default:
			if part {
				spec := stored.DeepCopy().Object["spec"].(map[string]any)
				for field, value := range o.Object["spec"].(map[string]any) {
					spec[field] = value
				}
				o.Object["spec"] = spec
			}
			o.SetResourceVersion(stored.GetResourceVersion())
			written, err = objects.Update(t.Context(), o, metav1.UpdateOptions{})
		}
		if err != nil {
			answers = append(answers, maskedText(fmt.Sprint(answerOf(t, err)), masks))
			continue
		}
		stored = written
		answers = append(answers, fmt.Sprint(maskedSpec(written, masks)))
	}
	return answers
}

// maskedSpec returns the spec with a mask for each address that the server chose: the n-th one of its story.
func maskedSpec(o *unstructured.Unstructured, masks map[any]string) map[string]any {
	spec := o.Object["spec"].(map[string]any)
	mask := func(kind string, value any) any {
		if fixed, ok := fixedAddress(value); ok {
			return fixed
		}
		if masks[value] == "" {
			masks[value] = fmt.Sprintf("%s %d", kind, len(masks)+1)
		}
		return masks[value]
	}
	if ip, ok := spec["clusterIP"]; ok {
		spec["clusterIP"] = mask("IP", ip)
	}
	ips, _ := spec["clusterIPs"].([]any)
	for i, ip := range ips {
		ips[i] = mask("IP", ip)
	}
	ports, _ := spec["ports"].([]any)
	for _, port := range ports {
		if p := port.(map[string]any); p["nodePort"] != nil {
			p["nodePort"] = mask("node port", p["nodePort"])
		}
	}
	if port := spec["healthCheckNodePort"]; port != nil {
		spec["healthCheckNodePort"] = mask("node port", port)
	}
	return spec
}

// reserved are the beginnings of the ranges, from which the servers choose only when nothing else is left.
var reserved = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/120")}

// fixedAddress reports whether an address is one that the stories name, and none that a server chooses by itself.
func fixedAddress(value any) (any, bool) {
	switch v := value.(type) {
	case int64:
		return v, v < 30080
	case string:
		ip, err := netip.ParseAddr(v)
		return v, err != nil || slices.ContainsFunc(reserved, func(r netip.Prefix) bool { return r.Contains(ip) })
	}
	return value, true
}

// maskedText replaces addresses in an error, the longest first.
func maskedText(text string, masks map[any]string) string {
	values := make([]string, 0, len(masks))
	for value := range masks {
		values = append(values, fmt.Sprint(value))
	}
	slices.SortFunc(values, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	for _, value := range values {
		for masked, mask := range masks {
			if fmt.Sprint(masked) == value {
				text = strings.ReplaceAll(text, value, mask)
			}
		}
	}
	return quotedIP.ReplaceAllStringFunc(text, func(quoted string) string {
		if _, fixed := fixedAddress(strings.Trim(quoted, `"`)); fixed {
			return quoted
		}
		return `"chosen, and not written"`
	})
}

var quotedIP = regexp.MustCompile(`"[0-9a-f.:]+"`)
