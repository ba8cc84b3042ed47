package servers

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

const head = `# Which servers keep the rules of lists and watches

<!-- Generated from test/servers/results by make servers-page. -->

[keepwatch conform](conform.md) judged each server once, with ConfigMaps and a custom resource, while the API server was killed and started
again between the writes.

    make servers
    make servers SERVER='kine on SQLite'

`

// Page returns docs/servers.md.
func Page(results []Result) []byte {
	var b bytes.Buffer
	b.WriteString(head)
	b.WriteString("| server | what runs | version | kept | broken | not offered | seed |\n|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d |\n", r.Server, find(r.Server).What, r.Version,
			r.count("kept"), r.count("broken"), r.count("not offered"), r.Seed)
	}
	for _, r := range results {
		if note := find(r.Server).Note; note != "" {
			fmt.Fprintf(&b, "\n%s: %s\n", r.Server, note)
		}
	}
	writeRules(&b, results)
	for _, r := range results {
		writeFacts(&b, r)
	}
	return b.Bytes()
}

// find returns the server with a name.
func find(name string) Server {
	all := Servers()
	return all[slices.IndexFunc(all, func(s Server) bool { return s.Name == name })]
}

func (r Result) count(verdict string) (n int) {
	for _, rule := range r.Rules {
		if rule.Verdict == verdict {
			n++
		}
	}
	return n
}

// verdict returns the verdict on a rule, and an empty one if the rule is newer than the result.
func (r Result) verdict(id string) string {
	for _, rule := range r.Rules {
		if rule.ID == id {
			return rule.Verdict
		}
	}
	return ""
}

// writeRules writes a row for each rule and a column for each server, and what each rule requires.
func writeRules(b *bytes.Buffer, results []Result) {
	if len(results) == 0 {
		return
	}
	b.WriteString(
		"\n## Rule by rule\n\n✓ is kept, – is not offered, ✗ is broken. [The rules](#the-rules) are below.\n\n| rule |")
	for _, r := range results {
		fmt.Fprintf(b, " %s |", r.Server)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(results)) + "\n")
	newest := slices.MaxFunc(results, func(a, b Result) int { return cmp.Compare(len(a.Rules), len(b.Rules)) })
	for _, rule := range newest.Rules {
		fmt.Fprintf(b, "| `%s` |", rule.ID)
		for _, r := range results {
			fmt.Fprintf(b, " %s |", map[string]string{"kept": "✓", "not offered": "–", "broken": "✗"}[r.verdict(rule.ID)])
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## The rules\n\n| rule | what it requires |\n|---|---|\n")
	for _, rule := range newest.Rules {
		fmt.Fprintf(b, "| [`%s`](%s) | %s |\n", rule.ID, rule.Source, rule.Sentence)
	}
}

// writeFacts writes why rules are not kept: the first facts, once for all rules that have the same ones.
func writeFacts(b *bytes.Buffer, r Result) {
	fmt.Fprintf(b, "\n## %s\n\n", r.Server)
	var reasons []string
	of := map[string][]string{} // rules by reason
	for _, rule := range r.Rules {
		if rule.Verdict == "kept" {
			continue
		}
		reason := rule.Verdict + "\n"
		for _, fact := range rule.Facts[:min(2, len(rule.Facts))] {
			fact, _, _ = strings.Cut(fact, "\n")
			reason += fmt.Sprintf("  - %s\n", fact)
		}
		if of[reason] == nil {
			reasons = append(reasons, reason)
		}
		of[reason] = append(of[reason], "`"+rule.ID+"`")
	}
	for _, reason := range reasons {
		fmt.Fprintf(b, "- %s: %s", strings.Join(of[reason], ", "), reason)
	}
}
