package audit

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Result is the outcome for one resource: a report, or the error for which there is none.
type Result struct {
	Resource string // its name: "pods", "deployments.apps"
	Report   *Report
	Err      error
}

// PrintTable writes results for people: a line for each resource, with the verdict and the digests, then
// a line for each difference.
func PrintTable(w io.Writer, results []Result) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(table, "RESOURCE\tREVISION\tOBJECTS\tAGAINST\tMISSING\tEXTRA\tDIFFERENT\tVERDICT")
	for _, one := range results {
		if r := one.Report; r != nil {
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\n", one.Resource, revisionColumn(r),
				r.Server.Objects, r.Against.Objects, r.Missing, r.Extra, r.Different, verdictColumn(r))
		} else {
			fmt.Fprintf(table, "%s\t-\t-\t-\t-\t-\t-\tnot compared\n", one.Resource)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range results {
		if one.Report == nil {
			continue
		}
		if err := one.Report.printDetails(w, one.Resource); err != nil {
			return err
		}
	}
	return nil
}

func revisionColumn(r *Report) string {
	if r.Revision == 0 {
		return "-"
	}
	return r.Revision.String()
}

// digestColumn is the number of digits of a digest in a table.
const digestColumn = 16

func verdictColumn(r *Report) string {
	switch {
	case r.Equal():
		return "equal, digest " + r.Server.Digest[:digestColumn]
	case !r.Complete():
		return "incomplete: some objects are unreadable"
	}
	return fmt.Sprintf("different, digests %s and %s", r.Server.Digest[:digestColumn], r.Against.Digest[:digestColumn])
}

func (r *Report) printDetails(w io.Writer, resource string) error {
	var text strings.Builder
	if r.Restarts > 0 {
		fmt.Fprintf(&text, "%s: compared again %d times, because a revision had expired\n", resource, r.Restarts)
	}
	for _, d := range r.Differences {
		fmt.Fprintf(&text, "%s %v: %v%s\n", resource, d.Key(), d.Kind, d.fieldsText())
	}
	if left := r.Missing + r.Extra + r.Different - len(r.Differences); left > 0 {
		fmt.Fprintf(&text, "%s: and %d more\n", resource, left)
	}
	for _, side := range []Summary{r.Server, r.Against} {
		for _, reason := range side.Reasons {
			fmt.Fprintf(&text, "%s: unreadable on %s: %s\n", resource, side.Name, reason)
		}
		if left := side.Unreadable - len(side.Reasons); left > 0 {
			fmt.Fprintf(&text, "%s: and %d more are unreadable on %s\n", resource, left, side.Name)
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// fieldsText returns the fields that differ, with a separator.
func (d Difference) fieldsText() string {
	switch {
	case d.Unknown != "":
		return ", in unknown fields: " + d.Unknown
	case d.MoreFields > 0:
		return fmt.Sprintf(" in %s and %d more fields", strings.Join(d.Fields, ", "), d.MoreFields)
	case len(d.Fields) > 0:
		return " in " + strings.Join(d.Fields, ", ")
	}
	return ""
}

// PrintJSON writes results as one JSON object. "equal" is true if each resource was compared and nothing
// differs.
func PrintJSON(w io.Writer, results []Result) error {
	type resource struct {
		Resource string `json:"resource"`
		Equal    bool   `json:"equal"`
		Error    string `json:"error,omitempty"`
		*Report
	}
	all := struct {
		Equal     bool       `json:"equal"`
		Resources []resource `json:"resources"`
	}{Equal: true}
	for _, one := range results {
		r := resource{Resource: one.Resource, Report: one.Report}
		if one.Err != nil {
			r.Error = one.Err.Error()
		}
		r.Equal = one.Report != nil && one.Report.Equal()
		all.Equal = all.Equal && r.Equal
		all.Resources = append(all.Resources, r)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(all)
}
