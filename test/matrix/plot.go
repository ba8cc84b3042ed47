package matrix

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// The sizes of a drawn grid, in pixels.
const (
	plotLeft, plotTop  = 190, 160
	cellWidth, cellRow = 44, 26
)

// colors are those of the marks.
var colors = map[string]string{complete: "#9fd8a4", incomplete: "#ffdf80", failed: "#f09a94"}

// drawGrid returns the grid of one server as SVG: a row a client, a column a plan, the mark as a color, and the number
// of LISTs. The same results give the same bytes.
func drawGrid(results []Result) []byte {
	rows := group(results, func(r Result) string { return r.Client })
	var b bytes.Buffer
	width, height := plotLeft+cellWidth*len(Plans)+90, plotTop+cellRow*len(rows)+10
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width,
		height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(&b, 10, 22, "start", fmt.Sprintf("%s: the number of LISTs; green %s, yellow %s, red %s", results[0].Upstream,
		complete, incomplete, failed))
	for i, plan := range Plans {
		x, y := plotLeft+cellWidth*i+cellWidth/2, plotTop-8
		fmt.Fprintf(&b, `<text x="%d" y="%d" transform="rotate(-50 %d %d)">%s</text>`+"\n", x, y, x, y, plan.Name)
	}
	for y, row := range rows {
		top := plotTop + cellRow*y
		text(&b, plotLeft-10, top+cellRow/2+4, "end", row[0].Client)
		for _, r := range row {
			left := plotLeft + cellWidth*planIndex(r)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s"/>`+"\n", left+1, top+1, cellWidth-2, cellRow-2,
				colors[r.mark()])
			text(&b, left+cellWidth/2, top+cellRow/2+4, "middle", fmt.Sprint(r.Lists))
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func text(b *bytes.Buffer, x, y int, anchor, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(b, []byte(s)) // a buffer cannot fail
	b.WriteString("</text>\n")
}
