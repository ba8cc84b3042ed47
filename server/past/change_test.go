package past

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/keepwatch/keepwatch"
	"github.com/keepwatch/keepwatch/source/history"
	"github.com/keepwatch/keepwatch/stream"
	"github.com/keepwatch/keepwatch/stream/sink"
)

// interrupted is a history from the revision 10 to 40, with a gap from 20 to 30, whose list was started over.
type interrupted struct {
	lagging
	epoch int // of its cursor
}

func (i interrupted) Snapshot(_ context.Context, read func(sink.Snapshot) error) error {
	return read(i)
}

func interruptedState(name string, from, to int, deleted bool) sink.State {
	s := sink.State{
		ID: int64(from), Resource: "secrets", Key: keepwatch.Key{Namespace: "shop", Name: name}, UID: keepwatch.UID(name),
		From: sink.Point{Revision: keepwatch.Revision(from)}, SeenFrom: clock("10:00"), Deleted: deleted,
		Object: fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q},"data":{"a":%q}}`, name,
			fmt.Sprint(from)),
	}
	if to > 0 {
		s.To, s.SeenTo = &sink.Point{Revision: keepwatch.Revision(to)}, clock("10:20")
	}
	return s
}

func (i interrupted) Status(context.Context) ([]sink.Status, error) {
	return []sink.Status{{
		ID: stream.Identity{Resource: "secrets"}, Active: true, First: sink.Point{Revision: 10}, FirstSeen: clock("10:00"),
		Progress: sink.Progress{Epoch: i.epoch, Cursor: 40, Since: 30}, Time: clock("10:30"),
	}}, nil
}

func (interrupted) Gaps(context.Context) ([]sink.StoredGap, error) {
	return []sink.StoredGap{{Resource: "secrets", From: 20, To: 30, Reason: keepwatch.GapDowntime, Began: clock("10:10"),
		Ended: clock("10:20")}}, nil
}

func (interrupted) States(_ context.Context, q sink.StateQuery, yield func(sink.State) error) error {
	return selected([]sink.State{
		interruptedState("old", 5, 0, false), interruptedState("a", 12, 25, false), interruptedState("b", 15, 30, true),
		interruptedState("brief", 22, 30, true), interruptedState("a", 25, 35, false), interruptedState("a", 35, 0, false),
	}, q, yield)
}

// The commands beside a change name moments that the history knows, and there is none if it knows none.
func TestCommandsOfAChange(t *testing.T) {
	const diff, restore = "keepwatch history diff secrets/%s -n shop --at revision/%d --and revision/%d --from DATABASE",
		"keepwatch history restore secrets/%s -n shop --at revision/%d --from DATABASE"
	for name, row := range map[string]struct {
		object              string
		at, epoch           int
		diff, before, after string
	}{
		"as usual": {"a", 35, 0, fmt.Sprintf(diff, "a", 34, 35), fmt.Sprintf(restore, "a", 30),
			fmt.Sprintf(restore, "a", 35)},
		"in a gap": {"a", 25, 0, fmt.Sprintf(diff, "a", 20, 30), fmt.Sprintf(restore, "a", 12),
			fmt.Sprintf(restore, "a", 30)},
		"deleted in a gap":    {"b", 30, 0, fmt.Sprintf(diff, "b", 20, 30), fmt.Sprintf(restore, "b", 15), ""},
		"there in a gap only": {"brief", 22, 0, fmt.Sprintf(diff, "brief", 20, 30), "", ""},
		"of the first list":   {"old", 5, 0, "", "", fmt.Sprintf(restore, "old", 10)},
		"of an earlier epoch": {"a", 12, 1, "", "", ""},
	} {
		err := history.New(interrupted{epoch: row.epoch}, history.Options{}).View(t.Context(), func(v *history.View) error {
			r := &pageRead{
				view: v, q: httptest.NewRequestWithContext(t.Context(), "GET", "/keepwatch/", nil),
				objects: history.Objects{Resource: "secrets"},
				query:   pageQuery{Object: "shop/" + row.object, Since: fmt.Sprint(row.at), UpTo: fmt.Sprint(row.at)},
			}
			timeline, err := v.Timeline(t.Context(), r.objects, history.Moment{Time: clock("09:00")},
				history.Moment{Revision: 40}, 100, 1000)
			if err != nil {
				return err
			}
			c, err := r.change(timeline)
			if err == nil && (c.Diff != row.diff || c.RestoreBefore != row.before || c.RestoreAfter != row.after) {
				t.Errorf("%s:\n%s\n%s\n%s", name, c.Diff, c.RestoreBefore, c.RestoreAfter)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
