package forward

import (
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"

	"github.com/keepwatch/keepwatch"
)

// No more watches end in one turn than may connect again at once. Only those end that memory continues.
func TestTakeoversAreBounded(t *testing.T) {
	open := newTakeovers(metrics.NewKubeRegistry())
	info := &request.RequestInfo{Verb: "watch", APIVersion: "v1", Resource: "configmaps"}
	for i := range takeoversAtOnce + 7 {
		open.open[&forwardedWatch{info: info, end: func() {}, frames: frameReader{at: keepwatch.Revision(i + 1)}}] = true
	}
	none := func(*http.Request, *request.RequestInfo, keepwatch.Revision, bool) bool { return false }
	all := func(*http.Request, *request.RequestInfo, keepwatch.Revision, bool) bool { return true }
	for i, want := range []int{0, takeoversAtOnce, takeoversAtOnce + 7} {
		open.turn([]Continues{none, all, all}[i])
		ended := 0
		for w := range open.open {
			if w.ended {
				ended++
			}
		}
		if ended != want {
			t.Errorf("%d watches have ended, want %d", ended, want)
		}
	}
}
