package published

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// The lines around the table.
const (
	begin = "<!-- make published-page writes the table from test/published/results -->\n"
	end   = "<!-- end of the table -->\n"
)

// Write returns the text of docs/judged.md with the table of the results.
func Write(text string, results []Result) (string, error) {
	head, rest, hasBegin := strings.Cut(text, begin)
	_, tail, hasEnd := strings.Cut(rest, end)
	if !hasBegin || !hasEnd {
		return "", fmt.Errorf("the page has no place for the table: it needs the lines %q and %q", begin, end)
	}
	var b strings.Builder
	b.WriteString("| published | what goes wrong | plan | affected | repaired | date |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		bug := find(r.Bug)
		kind, _, _ := strings.Cut(bug.plan, ":")
		if kind == "none" {
			kind = "no fault"
		}
		fmt.Fprintf(&b, "| [%s #%s](%s) | %s | %s | %s: %s | %s: %s | %s |\n", bug.Operator, path.Base(bug.Issue), bug.Issue,
			bug.Sentence, kind, r.Affected.Version, r.Affected.words(), r.Repaired.Version, r.Repaired.words(), r.Date)
	}
	return head + begin + b.String() + end + tail, nil
}

func find(name string) Bug {
	all := Bugs()
	return all[slices.IndexFunc(all, func(b Bug) bool { return b.Name == name })]
}

// words are the verdicts, each with how often it was shown.
func (v Verdict) words() string {
	if len(v.Findings) == 0 {
		return "no finding"
	}
	var all []string
	for _, f := range v.Findings {
		all = append(all, fmt.Sprintf("`%s`, %d of %d", f.Verdict, f.Shown, f.Of))
	}
	return strings.Join(slices.Compact(all), "; ")
}
