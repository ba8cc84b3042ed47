package deploy

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql"
)

// The size of a picture of a dashboard, whose grid has 24 columns.
const (
	column, row     = 40, 22 // pixels of a cell of the grid
	heading         = 44
	left, right     = 52, 10 // of the lines within a panel
	top, bottom     = 26, 54
	shownNames      = 6 // of the series in a legend
	charactersALine = 66
)

// colors are readable on a light and on a dark ground.
var colors = []string{"#3b82c4", "#d9822b", "#3f9e5a", "#b65fcf", "#c94f4f", "#8a7a3b", "#2aa4a4", "#888888"}

// line is what a panel shows of one series.
type line struct {
	name   string
	points []promql.FPoint
}

// nameOf is the name of a series, as Grafana makes it of a legend.
func nameOf(format string, series promql.Series) string {
	name := legend.ReplaceAllStringFunc(format, func(label string) string {
		return series.Metric.Get(legend.FindStringSubmatch(label)[1])
	})
	return strings.Join(strings.Fields(name), " ")
}

// picture draws a dashboard as SVG. shown has the lines of each panel.
func picture(d dashboard, source []byte, shown [][]line, until int64) string {
	var b strings.Builder
	height := 0
	for _, p := range d.Panels {
		height = max(height, (p.GridPos.Y+p.GridPos.H)*row)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">
<style>
text { fill: #333 } .dim { fill: #777 } .grid { stroke: #ddd } .panel { fill: #fff; stroke: #ccc } .ground { fill: #f4f5f5 }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .dim { fill: #999 } .grid { stroke: #333 } .panel { fill: #181b1f; stroke: #333 } .ground { fill: #111217 }
}
</style>
<rect class="ground" width="100%%" height="100%%"/>
`, 24*column, height+heading)
	fmt.Fprintf(&b, "<text x=\"10\" y=\"20\" font-size=\"15\">%s</text>\n", escape(d.Title))
	fmt.Fprintf(&b,
		"<text class=\"dim\" x=\"10\" y=\"36\">The panels of %s.json with the metrics of running commands. Grafana has another style.</text>\n", d.UID)
	for i, p := range d.Panels {
		fmt.Fprintf(&b, "<g transform=\"translate(%d %d)\">\n", p.GridPos.X*column+4, p.GridPos.Y*row+heading)
		drawPanel(&b, p, shown[i], until)
		b.WriteString("</g>\n")
	}
	// TestPictures compares it.
	fmt.Fprintf(&b, "</svg>\n<!-- %s.json %x -->\n", d.UID, sha256.Sum256(source))
	return b.String()
}

func drawPanel(b *strings.Builder, p panel, lines []line, until int64) {
	width, height := p.GridPos.W*column-8, p.GridPos.H*row-8
	fmt.Fprintf(b,
		"<rect class=\"panel\" width=\"%d\" height=\"%d\" rx=\"2\"/>\n<text x=\"8\" y=\"17\" font-weight=\"bold\">%s</text>\n",
		width, height, escape(p.Title))
	if p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
		lines = stacked(lines)
	}
	high := 0.0
	for _, l := range lines {
		for _, point := range l.points {
			high = max(high, point.F)
		}
	}
	begin := epoch.UnixMilli()
	x := func(at int64) float64 {
		return left + float64(at-begin)/float64(until-begin)*float64(width-left-right)
	}
	y := func(value float64) float64 {
		return float64(height-bottom) - value/high*float64(height-top-bottom)
	}
	for _, part := range []float64{0, 0.5, 1} {
		at := y(part * high)
		fmt.Fprintf(b,
			"<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text class=\"dim\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			left, width-right, at, at, left-4, at+4, withUnit(part*high, p.FieldConfig.Defaults.Unit))
	}
	fmt.Fprintf(b,
		"<text class=\"dim\" x=\"%d\" y=\"%d\">0 s</text><text class=\"dim\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%d s</text>\n",
		left, height-bottom+13, width-right, height-bottom+13, (until-begin)/1000)
	names, length, under := 0, 0, height-bottom+28
	for i, l := range lines {
		color := colors[i%len(colors)]
		var points []string
		for _, point := range l.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(point.T), y(point.F)))
		}
		fmt.Fprintf(b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" points=\"%s\"/>\n", color,
			strings.Join(points, " "))
		if names == shownNames {
			continue
		}
		if length > 0 && length+len(l.name) > charactersALine {
			length, under = 0, under+15
		}
		if under > height-4 {
			names = shownNames
			continue
		}
		at := 10 + length*6
		fmt.Fprintf(b, "<rect x=\"%d\" y=\"%d\" width=\"8\" height=\"3\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text>\n",
			at, under-5, color, at+11, under, escape(l.name))
		names, length = names+1, length+len(l.name)+4
	}
}

// stacked adds to each line those before it.
func stacked(lines []line) (all []line) {
	sum := map[int64]float64{}
	for _, l := range lines {
		above := line{name: l.name}
		for _, point := range l.points {
			sum[point.T] += point.F
			above.points = append(above.points, promql.FPoint{T: point.T, F: sum[point.T]})
		}
		all = append(all, above)
	}
	return all
}

// withUnit writes a value of an axis. The units are Grafana's names.
func withUnit(value float64, unit string) string {
	suffix := map[string]string{"s": " s", "ops": "/s", "reqps": "/s", "Bps": "B/s", "bytes": "B"}[unit]
	scale, letter := 1.0, ""
	switch {
	case value >= 1e6:
		scale, letter = 1e6, "M"
	case value >= 1e4:
		scale, letter = 1e3, "k"
	}
	if (unit == "Bps" || unit == "bytes") && letter == "" {
		letter = " "
	} else if letter != "" && suffix != "" && suffix[0] == 'B' {
		letter = " " + letter
	}
	number := strconv.FormatFloat(value/scale, 'g', 2, 64)
	if value/scale >= 10 {
		number = strconv.FormatFloat(math.Round(value/scale), 'f', 0, 64)
	}
	return number + letter + suffix
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder has no errors
	return b.String()
}

// draw writes the picture of a dashboard into a folder.
func draw(t *testing.T, folder string, d dashboard, shown [][]line, until int64) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", "..", "deploy", "grafana", d.UID+".json"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(folder, strings.Replace(d.UID, "keepwatch-", "dashboard-", 1)+".svg")
	if err := os.WriteFile(file, []byte(picture(d, source, shown, until)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A picture has each panel, the name of each series that fits, and its highest value.
func TestPicture(t *testing.T) {
	d := dashboard{UID: "keepwatch-x", Title: "A & B", Panels: []panel{{Title: "Bytes"}}}
	d.Panels[0].GridPos.W, d.Panels[0].GridPos.H = 12, 8
	d.Panels[0].FieldConfig.Defaults.Unit = "bytes"
	d.Panels[0].FieldConfig.Defaults.Custom.Stacking.Mode = "normal"
	begin := epoch.UnixMilli()
	points := []promql.FPoint{{T: begin, F: 1e6}, {T: begin + 60_000, F: 2e6}}
	svg := picture(d, nil, [][]line{{{"one", points}, {"two", points}}}, begin+60_000)
	if err := xml.Unmarshal([]byte(svg), new(struct{ XMLName xml.Name })); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A &amp; B", ">Bytes<", ">one<", ">two<", ">4 MB<", ">60 s<", "<!-- keepwatch-x.json "} {
		if !strings.Contains(svg, want) {
			t.Errorf("there is no %s in\n%s", want, svg)
		}
	}
	if n := strings.Count(svg, "<polyline"); n != 2 {
		t.Errorf("%d lines", n)
	}
}
