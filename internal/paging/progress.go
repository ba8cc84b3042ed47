package paging

import (
	"errors"
	"fmt"

	"github.com/keepwatch/keepwatch"
)

// maxPages bounds the pages of one list. With pages of 500 objects it is ten times what fits
// into etcd's 8 GiB.
const maxPages = 1 << 20

// Page is the part of a page that shows whether its list makes progress.
type Page struct {
	Continue string        // the token of the next page, empty on the last
	First    keepwatch.Key // of the page's first object, zero if it has none
}

// PageOf returns the part of a page that shows whether its list makes progress.
func PageOf(token string, objects []keepwatch.Object) Page {
	p := Page{Continue: token}
	if len(objects) > 0 {
		p.First = objects[0].Key()
	}
	return p
}

// Progress is the progress of one list. The zero value is the progress before its first page.
// Values are comparable.
//
// It compares each page with one earlier page only: the last one whose number is a power of
// two (Brent's algorithm). So it needs memory for one page, and finds every repetition: of a
// list that repeats n pages after m others, within the first 3·max(m, n) + n pages.
type Progress struct {
	pages uint32
	mark  Page
}

// After returns the progress after the next page. It returns an error if that page shows that
// the list never ends: its continue token or its first object is that of an earlier page, or
// the list has too many pages.
func (p Progress) After(next Page) (Progress, error) {
	p.pages++
	switch none := (keepwatch.Key{}); {
	case next.Continue == "":
	case p.pages > 1 && next.Continue == p.mark.Continue:
		return p, errors.New("the list makes no progress: the server sent the same continue token for two pages")
	case p.pages > 1 && next.First != none && next.First == p.mark.First:
		return p, fmt.Errorf("the list makes no progress: the server sent two pages that begin with %v", next.First)
	case p.pages >= maxPages:
		return p, fmt.Errorf("the list makes no progress: it has more than %d pages", maxPages)
	}
	if p.pages&(p.pages-1) == 0 {
		p.mark = next
	}
	return p, nil
}
