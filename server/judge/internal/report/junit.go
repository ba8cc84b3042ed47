package report

import (
	"encoding/xml"
	"io"
)

// Suite is a report in JUnit's format, with the elements that test reports in CI systems read.
type Suite struct {
	Name  string
	Time  float64 // in seconds
	Cases []Case
}

// Case is a test case. With neither a failure nor a skip it has passed.
type Case struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Time    float64  `xml:"time,attr,omitempty"` // in seconds
	Failure *Message `xml:"failure,omitempty"`
	Skipped *Message `xml:"skipped,omitempty"`
}

// Message says why a case has failed or was skipped.
type Message struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// Write writes the suite, with the numbers of its cases.
func (s Suite) Write(w io.Writer) error {
	counted := struct {
		XMLName  xml.Name `xml:"testsuite"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Time     float64  `xml:"time,attr"`
		Cases    []Case   `xml:"testcase"`
	}{Name: s.Name, Time: s.Time, Tests: len(s.Cases), Cases: s.Cases}
	for _, c := range s.Cases {
		switch {
		case c.Failure != nil:
			counted.Failures++
		case c.Skipped != nil:
			counted.Skipped++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(counted); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
