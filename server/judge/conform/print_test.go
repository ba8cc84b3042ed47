package conform

import (
	"strings"
	"testing"
)

// What a server sends cannot control the terminal that shows the report.
func TestPrintTableIsPlain(t *testing.T) {
	const hostile = "v1\x1b]0;owned\x07\x9b31m\u202e\u2028\nKEPT"
	r := &Report{Server: hostile, Version: hostile, Resources: []string{"pods"}}
	result := Result{Rule: Rule{ID: "list", Sentence: "s"}, Verdict: Broken}
	result.add("pods", outcome{Broken, []string{"received: " + hostile}})
	r.Results = []Result{result}
	var b strings.Builder
	if err := r.PrintTable(&b); err != nil {
		t.Fatal(err)
	}
	Options{Progress: func(line string) { b.WriteString(line) }}.log("only: %s", hostile)
	if strings.ContainsAny(b.String(), "\x1b\x07\u202e\u2028\u009b") || strings.Contains(b.String(), "\x9b") ||
		strings.Contains(b.String(), "\nKEPT") {
		t.Errorf("%q", b.String())
	}
}
