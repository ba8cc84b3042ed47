package matrix

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
)

// plot is a figure of one quantity: a row a client, a column a plan, and a circle a cell, whose area is
// the value. A cross is a cell without a value.
type plot struct {
	name, title, unit string
	value             func(Result) (float64, bool)
}

// The sizes of a plot, in pixels.
const (
	plotLeft, plotTop  = 190, 150
	cellWidth, cellRow = 44, 30
	largest            = 13 // radius
)

// draw returns the plot as SVG. The same results give the same bytes.
func (p plot) draw(results []Result) []byte {
	rows := group(results, func(r Result) string { return r.Client })
	most := 0.0
	for _, r := range results {
		if v, ok := p.value(r); ok {
			most = max(most, v)
		}
	}
	var b bytes.Buffer
	width, height := plotLeft+cellWidth*len(Plans)+80, plotTop+cellRow*len(rows)+10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(&b, 10, 22, "start", p.title+"; a cross: the client did not get right")
	for i, plan := range Plans {
		x, y := plotLeft+cellWidth*i+cellWidth/2, plotTop-8
		fmt.Fprintf(&b, `<text x="%d" y="%d" transform="rotate(-50 %d %d)">%s</text>`+"\n", x, y, x, y, plan.Name)
	}
	for y, row := range rows {
		center := plotTop + cellRow*y + cellRow/2
		text(&b, plotLeft-10, center+4, "end", row[0].Client)
		for _, r := range row {
			p.cell(&b, r, plotLeft+cellWidth*planIndex(r)+cellWidth/2, center, most)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// cell draws one cell around a center.
func (p plot) cell(b *bytes.Buffer, r Result, x, y int, most float64) {
	v, ok := p.value(r)
	if !ok {
		fmt.Fprintf(b, `<path d="M%d %dl8 8m0 -8l-8 8" stroke="#c00" stroke-width="2"/>`+"\n", x-4, y-4)
		return
	}
	if v > 0 {
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="%.1f" fill="#48c" fill-opacity="0.5"/>`+"\n", x, y, largest*math.Sqrt(v/most))
	}
	label := fmt.Sprintf("%.1f", v)
	if v == math.Trunc(v) {
		label = fmt.Sprintf("%.0f", v)
	}
	text(b, x, y+4, "middle", label)
}

func text(b *bytes.Buffer, x, y int, anchor, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(s)) // a buffer cannot fail
	b.WriteString("</text>\n")
}
