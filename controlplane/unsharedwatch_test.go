package controlplane

import (
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that is stopped ends, also with an event that nobody receives.
func TestUnsharedWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch.NewFakeWithChanSize(2, false)
		w.Add(&metav1.PartialObjectMetadata{})
		w.Add(&metav1.PartialObjectMetadata{})
		u := newUnsharedWatch(w)
		<-u.ResultChan()
		synctest.Wait()
		u.Stop()
		u.Stop()
	})
}
