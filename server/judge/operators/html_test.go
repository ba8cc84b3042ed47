package operators

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// TestHTML checks that the page is well formed whatever names and values a report quotes, and that each write has a
// mark.
func TestHTML(t *testing.T) {
	const hostile = `"><script>alert(1)</script>` + "\x1b[31m"
	var requests []Request
	for i := range 30 { // of more objects than there are lanes
		requests = append(requests, Request{
			Place: Place{Step: 1, Verb: "create", Resource: "widgets.example.com", Namespace: "default",
				Name: fmt.Sprint(hostile, i), Nth: 1},
			Instance: 1 + i/20, Status: []int{201, 409, 0}[i%3], After: time.Duration(i) * time.Millisecond,
		})
	}
	requests = append(requests, Request{Place: Place{Step: 1}, Note: hostile, After: time.Second})
	plan := Plan{Kind: Kinds[0].Name, Place: requests[0].Place}
	r := &Report{
		Operator: hostile, Steps: []string{"1.yaml"}, Results: []Result{{Plan: plan, Reached: true}},
		Findings: []Finding{
			{Verdict: Died, Plan: &plan, Facts: []string{hostile}, Requests: requests, Shown: 3, Of: 3},
			{Verdict: Died, Expected: hostile, Requests: requests[:1], Smallest: &Finding{Plan: &plan, Steps: "1", Shown: 1,
				Of: 3}},
			{Verdict: Died},
		},
	}
	var page strings.Builder
	if err := r.PrintHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	count := func(part string) int { return strings.Count(text, part) }
	if strings.Contains(text, "<script") || strings.Contains(text, "\x1b") {
		t.Error("a name becomes a part of the page")
	}
	if marks, lanes, starts := count("<title>"), count(`<line class="lane"`), count(`<line class="start"`); marks != 1+
		len(requests) ||
		lanes != timelineLanes || starts != 2 {
		t.Errorf("%d titles, %d lanes, %d starts", marks, lanes, starts)
	}
	if count("<h2>") != 3 || count(`class="expected"`) != 1 || count("Smallest, in 1 of 3 runs: --steps 1") != 1 {
		t.Errorf("%s", text)
	}
	decoder := xml.NewDecoder(strings.NewReader(text))
	decoder.Strict, decoder.AutoClose, decoder.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the page is not well formed: %v", err)
		}
	}
}
