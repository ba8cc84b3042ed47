package apiserver

import (
	"fmt"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"k8s.io/kubernetes/pkg/apis/batch"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/keepwatch/keepwatch/internal/testonly/fleet"
	"github.com/keepwatch/keepwatch/server/readpath"
)

var kubernetesTables = ageTable{printers.NewTableGenerator().With(printersinternal.AddHandlers), 0}

// TestRowsShowAges compares rows that were made once with the printer's at later times.
func TestRowsShowAges(t *testing.T) {
	ago := func(d time.Duration) metav1.Time { return metav1.Time{Time: time.Now().Add(-d)} }
	ptr := func(t metav1.Time) *metav1.Time { return &t }
	meta := func(d time.Duration) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "x-5m", CreationTimestamp: ago(d)}
	}
	day, minute := 24*time.Hour, time.Minute
	ended := func(d time.Duration) core.ContainerState {
		return core.ContainerState{Terminated: &core.ContainerStateTerminated{FinishedAt: ago(d), StartedAt: ago(d + minute)}}
	}
	for name, o := range map[string]runtime.Object{
		"pod": &core.Pod{ObjectMeta: meta(5 * minute), Status: core.PodStatus{Phase: core.PodRunning,
			StartTime: ptr(ago(5 * minute))}},
		"never created": &core.Pod{},
		"restarts": &core.Pod{ObjectMeta: meta(3 * day), Spec: core.PodSpec{Containers: make([]core.Container, 3)},
			Status: core.PodStatus{ContainerStatuses: []core.ContainerStatus{
				{RestartCount: 2, LastTerminationState: ended(day)}, {RestartCount: 3, LastTerminationState: ended(3 * day)},
				{RestartCount: 1, LastTerminationState: ended(2 * day)},
			}}},
		"running job": &batch.Job{ObjectMeta: meta(day), Status: batch.JobStatus{StartTime: ptr(ago(5 * minute))}},
		"finished job": &batch.Job{ObjectMeta: meta(day), Status: batch.JobStatus{StartTime: ptr(ago(25 * minute)),
			CompletionTime: ptr(ago(20 * minute))}},
		"cron job": &batch.CronJob{ObjectMeta: meta(9 * day),
			Status: batch.CronJobStatus{LastScheduleTime: ptr(ago(2 * minute))}},
		"event": &core.Event{ObjectMeta: meta(minute), FirstTimestamp: ago(9 * minute), LastTimestamp: ago(7 * minute),
			EventTime: metav1.MicroTime{Time: ago(8 * minute).Time}, Series: &core.EventSeries{Count: 5,
				LastObservedTime: metav1.MicroTime{Time: ago(6 * minute).Time}}},
	} {
		t.Run(name, func(t *testing.T) {
			row, err := kubernetesTables.row(o)
			if err != nil {
				t.Fatal(err)
			}
			// Instead of waiting, an hour is taken from all times of the object.
			for _, f := range timesOf(o) {
				f.set(f.get().Add(-time.Hour))
			}
			want, err := kubernetesTables.print(o)
			if err != nil {
				t.Fatal(err)
			}
			for i, cell := range row.Cells {
				if since, ok := cell.(readpath.Since); ok {
					cell = since.At(time.Now().Add(time.Hour))
				}
				if cell != want.Cells[i] {
					t.Errorf("cell %d is %v, want %v", i, cell, want.Cells[i])
				}
			}
		})
	}
}

// TestAmbiguousAges: a finished job shows how long it ran, which is as long as its age now.
func TestAmbiguousAges(t *testing.T) {
	now := time.Now()
	start, end := metav1.Time{Time: now.Add(-9*time.Hour - 30*time.Minute)}, metav1.Time{Time: now.Add(-time.Minute)}
	job := &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: start},
		Status: batch.JobStatus{StartTime: &start, CompletionTime: &end}}
	row, err := kubernetesTables.row(job)
	if err != nil {
		t.Fatal(err)
	}
	const ran, age = 3, 4
	if row.Cells[ran] != "9h" {
		t.Errorf("the job ran for %v", row.Cells[ran])
	}
	if since, ok := row.Cells[age].(readpath.Since); !ok || !since.Time.Equal(start.Time) {
		t.Errorf("the job's age is %v", row.Cells[age])
	}
}

// TestAgesChangeMeanwhile: seconds pass while a row is printed.
func TestAgesChangeMeanwhile(t *testing.T) {
	slow := func(each time.Duration) ageTable {
		return ageTable{printers.NewTableGenerator().With(func(h printers.PrintHandler) {
			_ = h.TableHandler([]metav1.TableColumnDefinition{{Name: "Age", Type: "string"}}, func(c *core.ConfigMap,
				_ printers.GenerateOptions) ([]metav1.TableRow, error) {
				age := duration.HumanDuration(time.Since(c.CreationTimestamp.Time))
				time.Sleep(each)
				return []metav1.TableRow{{Cells: []any{age}}}, nil
			})
		}), 0}
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(500 * time.Millisecond)
		created := time.Now().Truncate(time.Second).Add(-5 * time.Minute)
		o := &core.ConfigMap{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Time{Time: created}}}
		row, err := slow(300 * time.Millisecond).row(o)
		if err != nil {
			t.Fatal(err)
		}
		if since, ok := row.Cells[0].(readpath.Since); !ok || !since.Time.Equal(created) {
			t.Errorf("the cell is %v", row.Cells[0])
		}
		if row, err := slow(2 * time.Second).row(o); err == nil {
			t.Errorf("the row is %v although no two prints have the same age", row.Cells)
		}
	})
}

// TestAgesOfObjects compares rows whose column Age is known to show the creation with those that are found by
// experiment: of all kinds, and of objects whose other times are the creation's, or nearly so.
func TestAgesOfObjects(t *testing.T) {
	const seed = 1
	scheme, known := legacyscheme.Scheme, 0
	for kind := range scheme.AllKnownTypes() {
		random := rand.New(rand.NewSource(seed))
		fill := fuzzer.FuzzerFor(apitesting.FuzzerFuncs, rand.NewSource(seed), legacyscheme.Codecs)
		example, err := scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		headers, err := kubernetesTables.printer.GenerateTable(example, printers.GenerateOptions{Wide: true})
		if err != nil || kind.Version != runtime.APIVersionInternal || sinceCreation(headers.ColumnDefinitions) == 0 {
			continue
		}
		if _, ok := example.(metav1.ObjectMetaAccessor); !ok {
			continue // a list
		}
		known++
		quick := kubernetesTables
		quick.sinceCreation = sinceCreation(headers.ColumnDefinitions)
		for range 20 {
			o := example.DeepCopyObject()
			fill.Fill(o)
			created := time.Now().Add(-time.Duration(random.Int63n(int64(1000 * time.Hour))))
			o.(metav1.ObjectMetaAccessor).GetObjectMeta().SetCreationTimestamp(metav1.Time{Time: created})
			for _, f := range timesOf(o) {
				f.set(created.Add(-time.Duration(random.Int63n(3)) * time.Minute))
			}
			for {
				began := time.Now()
				got, err := quick.row(o)
				want, wantErr := kubernetesTables.row(o)
				if !sameAges(timesOf(o), began, time.Now()) {
					continue
				}
				if !reflect.DeepEqual(got.Cells, want.Cells) || (err == nil) != (wantErr == nil) {
					t.Errorf("%s: %v, %v; by experiment %v, %v", kind, got.Cells, err, want.Cells, wantErr)
				}
				break
			}
		}
	}
	if known < 30 {
		t.Errorf("only %d kinds show the age of their objects", known)
	}
}

// TestRowsAreInOrder: the rows of a printed list are those of its items, one by one, unless requests for the Table are
// delegated.
func TestRowsAreInOrder(t *testing.T) {
	scheme, printed := legacyscheme.Scheme, 0
	for kind, listType := range scheme.AllKnownTypes() {
		item := kind.GroupVersion().WithKind(strings.TrimSuffix(kind.Kind, "List"))
		if kind.Version != runtime.APIVersionInternal || item.Kind == kind.Kind || !scheme.Recognizes(item) {
			continue
		}
		plural, _ := meta.UnsafeGuessKindToResource(item)
		example, err := scheme.New(item)
		if err != nil {
			t.Fatal(err)
		}
		if tableOf(plural.GroupResource(), example, nil) == nil {
			continue
		}
		printed++
		t.Run(plural.GroupResource().String(), func(t *testing.T) {
			random := fuzzer.FuzzerFor(apitesting.FuzzerFuncs, rand.NewSource(1), legacyscheme.Codecs)
			list := reflect.New(listType)
			items := list.Elem().FieldByName("Items")
			for i := range 8 {
				o := reflect.New(items.Type().Elem())
				random.Fill(o.Interface())
				o.Interface().(metav1.Object).SetName(fmt.Sprint("o", i))
				items.Set(reflect.Append(items, o.Elem()))
			}
			table, err := kubernetesTables.printer.GenerateTable(list.Interface().(runtime.Object),
				printers.GenerateOptions{Wide: true})
			if err != nil {
				t.Fatal(err)
			}
			for i, row := range table.Rows {
				o, err := meta.Accessor(row.Object.Object)
				if err != nil {
					t.Fatal(err)
				}
				if want := fmt.Sprint("o", i); o.GetName() != want {
					t.Fatalf("row %d is %s, want %s", i, o.GetName(), want)
				}
			}
			if len(table.Rows) != items.Len() {
				t.Errorf("%d items have %d rows", items.Len(), len(table.Rows))
			}
		})
	}
	if printed < 40 {
		t.Errorf("only %d kinds have printers", printed)
	}
}

// BenchmarkRow prints the row of a pod as clusters have it, with the times that its ages are counted from; print alone
// is what Kubernetes does.
func BenchmarkRow(b *testing.B) {
	internal, err := legacyscheme.Scheme.ConvertToVersion(fleet.Pod(1), core.SchemeGroupVersion)
	if err != nil {
		b.Fatal(err)
	}
	pods := kubernetesTables
	pods.sinceCreation = 5
	for name, row := range map[string]func(runtime.Object) (metav1.TableRow, error){"row": pods.row,
		"by experiment": kubernetesTables.row, "print": kubernetesTables.print} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := row(internal); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The row of a pod does not depend on the fields that are left out when it is decoded for a row, nor does its metadata
// on being decoded.
func TestRowsDoNotReadUnreadFields(t *testing.T) {
	const seed = 1
	random := fuzzer.FuzzerFor(apitesting.FuzzerFuncs, rand.NewSource(seed), legacyscheme.Codecs)
	version := versionOfKind(corev1.SchemeGroupVersion.WithKind("Pod"), core.SchemeGroupVersion)
	for i := range 300 {
		var internal runtime.Object = &core.Pod{}
		if i == 0 {
			internal = must(legacyscheme.Scheme.ConvertToVersion(fleet.Pod(1), core.SchemeGroupVersion))(t)
		} else {
			random.Fill(internal)
		}
		message := must(must(version.To(internal))(t).(*corev1.Pod).Marshal())(t)
		decoded := func(message []byte) *core.Pod {
			pod := &corev1.Pod{}
			if err := pod.Unmarshal(message); err != nil {
				t.Fatal(err)
			}
			return must(version.From(pod))(t).(*core.Pod)
		}
		served := &corev1.Pod{}
		if err := served.Unmarshal(message); err != nil {
			t.Fatal(err)
		}
		rest, ok := unread[schema.GroupResource{Resource: "pods"}].Without(nil, message)
		if !ok {
			t.Fatal("its message is none")
		}
		whole, part := decoded(message), decoded(rest)
		want, got := must(kubernetesTables.print(whole))(t), must(kubernetesTables.print(part))(t)
		if !reflect.DeepEqual(got.Cells, want.Cells) || !reflect.DeepEqual(got.Conditions, want.Conditions) {
			t.Fatalf("pod %d: %v without its unread fields, %v with them", i, got, want)
		}
		if !reflect.DeepEqual(whole.ObjectMeta, served.ObjectMeta) {
			t.Fatalf("pod %d: %v before its conversion, and as it is served %v", i, whole.ObjectMeta, served.ObjectMeta)
		}
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// BenchmarkMessageRow makes the row of a pod of its message: decoded as a whole, and without what a row does not read.
func BenchmarkMessageRow(b *testing.B) {
	version := versionOfKind(corev1.SchemeGroupVersion.WithKind("Pod"), core.SchemeGroupVersion)
	message, err := fleet.Pod(1).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	pods := unread[schema.GroupResource{Resource: "pods"}]
	for name, fields := range map[string]readpath.Fields{"whole": {}, "read": pods} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var part []byte
			for b.Loop() {
				part, _ = fields.Without(part[:0], message)
				pod := &corev1.Pod{}
				if err := pod.Unmarshal(part); err != nil {
					b.Fatal(err)
				}
				if _, err := kubernetesTables.row(must(version.From(pod))(b)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
