package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/keepwatch/keepwatch/informer/clientgo"
	"github.com/keepwatch/keepwatch/internal/testonly/podtest"
)

// A cache has the same objects as client-go's, whatever a ListFunc makes of the server's lists. The server has no
// streaming lists.
func TestCompareListFuncs(t *testing.T) {
	t.Parallel()
	odd := func(p corev1.Pod) bool { return (p.Name[len(p.Name)-1]-'0')%2 == 1 }
	for name, listFunc := range map[string]func(metav1.ListOptions) (*corev1.PodList, error){
		"passes the server's lists on": func(options metav1.ListOptions) (*corev1.PodList, error) {
			return listPods("a", options), nil
		},
		"has a limit of its own": func(options metav1.ListOptions) (*corev1.PodList, error) {
			options.Limit, options.ResourceVersion = 70, ""
			return listPods("a", options), nil
		},
		"filters": func(options metav1.ListOptions) (*corev1.PodList, error) {
			l := listPods("a", options)
			l.Items = slices.DeleteFunc(l.Items, odd)
			return l, nil
		},
		"filters, without the server's metadata": func(options metav1.ListOptions) (*corev1.PodList, error) {
			l := listPods("a", options)
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: l.ResourceVersion},
				Items: slices.DeleteFunc(l.Items, odd)}, nil
		},
		"filters, without a resourceVersion": func(options metav1.ListOptions) (*corev1.PodList, error) {
			return &corev1.PodList{Items: slices.DeleteFunc(listPods("a", options).Items, odd)}, nil
		},
		"merges namespaces, without the server's metadata": func(options metav1.ListOptions) (*corev1.PodList, error) {
			a, b := listPods("a", options), listPods("b", options)
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: b.ResourceVersion},
				Items: append(a.Items, b.Items...)}, nil
		},
		"merges namespaces, with the metadata of the first": func(options metav1.ListOptions) (*corev1.PodList, error) {
			l := listPods("n", options)
			l.Items = append(l.Items, listPods("b", options).Items...)
			return l, nil
		},
		"reads pages": func(options metav1.ListOptions) (*corev1.PodList, error) {
			l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5000"}}
			return l, pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
				return listPods("a", options), nil
			})).EachListItem(context.Background(), options, func(o runtime.Object) error {
				l.Items = append(l.Items, *o.(*corev1.Pod))
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keysOf := func(build func(cache.ListerWatcher) cache.SharedIndexInformer) []string {
				inf := build(&cache.ListWatch{
					ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
						return listFunc(options)
					},
					WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
						if options.SendInitialEvents != nil {
							return nil, errors.New("there are no streaming lists")
						}
						return watch.NewFake(), nil
					},
				})
				defer podtest.Run(t, inf)()
				podtest.WaitForSync(t, inf)
				keys := inf.GetStore().ListKeys()
				slices.Sort(keys)
				return keys
			}
			theirs := keysOf(func(lw cache.ListerWatcher) cache.SharedIndexInformer {
				return cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
			})
			ours := keysOf(func(lw cache.ListerWatcher) cache.SharedIndexInformer {
				return clientgo.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
			})
			if !slices.Equal(ours, theirs) || len(ours) < 600 {
				t.Errorf("keepwatch has %d objects, client-go %d", len(ours), len(theirs))
			}
		})
	}
}

// listPods answers a list of one of the namespaces, which have 1,200 pods each, as kube-apiserver does: a list at the
// resourceVersion 0 has no pages, and a continue token is the name behind which the next page begins.
func listPods(namespace string, options metav1.ListOptions) *corev1.PodList {
	l := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "5000"}}
	for n := range 1200 {
		p := podtest.Pod(fmt.Sprintf("%s-%04d", namespace, n), podtest.At(n+1))
		p.Namespace, p.UID = namespace, types.UID(p.Name)
		if strings.Compare(p.Name, options.Continue) <= 0 {
			continue
		}
		if options.Limit > 0 && options.ResourceVersion != "0" && len(l.Items) == int(options.Limit) {
			last := l.Items[len(l.Items)-1].Name
			index, _ := strconv.Atoi(last[strings.LastIndex(last, "-")+1:])
			l.Continue, l.RemainingItemCount = last, new(int64(1199-index))
			break
		}
		l.Items = append(l.Items, *p)
	}
	return l
}
