package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keepwatch/keepwatch/test/peer"
)

const (
	// stepTimeout bounds each wait for something that a working cluster does.
	stepTimeout = 15 * time.Minute
	// pollInterval is the interval in which a wait looks at the informers.
	pollInterval = 200 * time.Millisecond
	// parallel is the number of the story's simultaneous requests.
	parallel = 8
)

// story is one run on one cluster.
type story struct {
	scale
	apps    []app
	cluster *peer.Cluster
	audit   *auditLog
	config  *rest.Config
	client  kubernetes.Interface
	state   func() (state, error)
	began   time.Time
	logf    func(string, ...any)
	figures figures
}

// runStory runs the story with a value of --reads.
func runStory(t *testing.T, reads string, size scale) figures {
	audit, err := newAuditLog(t.ArtifactDir())
	if err != nil {
		t.Fatal(err)
	}
	cluster := peer.StartCluster(t, append(audit.flags(), "--reads="+reads)...)
	s := &story{scale: size, apps: size.apps(), cluster: cluster, audit: audit, config: cluster.Config(),
		began: time.Now(), logf: t.Logf}
	s.figures.reads = reads
	s.config.UserAgent = "story"
	s.config.ContentType, s.config.AcceptContentTypes = "application/vnd.kubernetes.protobuf",
		"application/vnd.kubernetes.protobuf,application/json"
	if s.client, err = kubernetes.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	if s.state, err = informed(t.Context(), s.client); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"nodes and namespaces are ready", s.begin},
		{"all pods run", s.deploy},
		{"the API server is killed during a rolling update", s.update},
		{"the rolling update is done", s.rollOut},
		{"nodes are drained", func(ctx context.Context) error { return s.drain(ctx, t) }},
		{"namespaces and Deployments are deleted", s.remove},
		{"the cluster is measured", s.measure},
		{"the cluster has what it should have", s.verify},
		{"another API server reads the same", func(ctx context.Context) error { return s.compareReads(ctx, t) }},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), stepTimeout)
		if err := step.do(ctx); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		cancel()
		t.Logf("%6.1f s  %s", time.Since(s.began).Seconds(), step.name)
	}
	return s.figures
}

// begin creates namespaces and nodes.
func (s *story) begin(ctx context.Context) error {
	for i := range namespaces {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i)}}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, n, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := each(ctx, s.nodes, func(ctx context.Context, i int) error {
		_, err := s.client.CoreV1().Nodes().Create(ctx, node(i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return s.wait(ctx, func(now state) string {
		for _, n := range now.nodes {
			if is := describeNode(n); is != "ready" {
				return n.Name + " is " + is
			}
		}
		accounts, err := s.client.CoreV1().ServiceAccounts("").List(ctx,
			metav1.ListOptions{FieldSelector: "metadata.name=default"})
		switch {
		case err != nil:
			return err.Error()
		case len(now.nodes) < s.nodes:
			return fmt.Sprintf("%d nodes", len(now.nodes))
		case len(accounts.Items) < namespaces:
			return fmt.Sprintf("%d service accounts", len(accounts.Items))
		}
		return ""
	})
}

// deploy creates all Deployments.
func (s *story) deploy(ctx context.Context) error {
	began := time.Now()
	if err := each(ctx, len(s.apps), func(ctx context.Context, i int) error {
		return s.apps[i].create(ctx, s.client)
	}); err != nil {
		return err
	}
	err := s.wait(ctx, func(now state) string { return s.rollingOut(now, false) })
	s.figures.allRun = time.Since(began)
	return err
}

// update begins a rolling update, and kills the API server when half of its pods run.
func (s *story) update(ctx context.Context) error {
	pods := 0
	for _, a := range s.apps {
		if a.updated {
			pods += a.replicas
		}
	}
	if err := each(ctx, len(s.apps), func(ctx context.Context, i int) error {
		if !s.apps[i].updated {
			return nil
		}
		return s.apps[i].update(ctx, s.client)
	}); err != nil {
		return err
	}
	if err := s.wait(ctx, func(now state) string {
		if n := updatedPods(now); n < pods/2 {
			return fmt.Sprintf("%d of %d updated pods run", n, pods)
		}
		return ""
	}); err != nil {
		return err
	}
	if err := s.figures.add(ctx, s.cluster); err != nil {
		return err
	}
	s.audit.mark()
	killed := time.Now()
	s.cluster.Kill()
	if now, err := s.state(); err != nil {
		return err
	} else {
		s.logf("killed when %d of %d updated pods ran", updatedPods(now), pods)
	}
	if err := s.cluster.Restart(ctx); err != nil {
		return err
	}
	s.figures.ready = time.Since(killed)
	if err := s.probe(ctx); err != nil {
		return err
	}
	s.figures.follow = time.Since(killed)
	return nil
}

// probe creates a Deployment and waits until its pod runs. By then Kubernetes' controllers, its scheduler and
// KWOK have received events that are newer than the restart.
func (s *story) probe(ctx context.Context) error {
	a := app{namespace: metav1.NamespaceDefault, name: "probe", replicas: 1}
	deployments := s.client.AppsV1().Deployments(a.namespace)
	if _, err := deployments.Create(ctx, a.deployment(), metav1.CreateOptions{}); err != nil {
		return err
	}
	pods := s.client.CoreV1().Pods(a.namespace)
	if err := poll(ctx, 10*time.Millisecond, func() string {
		list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: appLabel + "=" + a.name})
		switch {
		case err != nil:
			return err.Error()
		case len(list.Items) == 0:
			return "there is no pod"
		case !running(&list.Items[0]):
			return fmt.Sprintf("the pod is %s on node %q", list.Items[0].Status.Phase, list.Items[0].Spec.NodeName)
		}
		return ""
	}); err != nil {
		return err
	}
	return deployments.Delete(ctx, a.name, metav1.DeleteOptions{})
}

// rollOut waits for the end of the rolling update, and counts what the restart has cost until then.
func (s *story) rollOut(ctx context.Context) error {
	if err := s.wait(ctx, func(now state) string { return s.rollingOut(now, true) }); err != nil {
		return err
	}
	resumed, err := s.audit.since(s.logf)
	if s.figures.resumed = resumed; err != nil || s.figures.reads != readsKeepwatch {
		return err
	}
	if resumed.lists+resumed.streams > 0 || resumed.unanswered > resumed.watches/4 {
		return fmt.Errorf(
			"after the restart the components sent %d LISTs and %d requests for initial streams, %d more before they had an answer, and resumed %d watches",
			resumed.lists, resumed.streams, resumed.unanswered, resumed.watches)
	}
	return nil
}

// drain evicts all pods of some nodes.
func (s *story) drain(ctx context.Context, t *testing.T) error {
	const label = "drain=now"
	labelNodes := []string{"label", "nodes"}
	for i := range s.nodes {
		if drained(i) {
			labelNodes = append(labelNodes, nodeName(i))
		}
	}
	s.cluster.Kubectl(t, append(labelNodes, label)...)
	began := time.Now()
	s.cluster.Kubectl(t, "drain", "--selector", label, "--ignore-daemonsets", "--timeout", stepTimeout.String())
	s.figures.drain = time.Since(began)
	for i := range s.nodes {
		if !drained(i) {
			continue
		}
		pods, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName(i)})
		if err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("%s has %d pods", nodeName(i), len(pods.Items))
		}
	}
	s.cluster.Kubectl(t, "uncordon", "--selector", label)
	return s.wait(ctx, func(now state) string { return s.rollingOut(now, true) })
}

// remove deletes namespaces, and Deployments in each way, and waits until the cluster is as it should be.
func (s *story) remove(ctx context.Context) error {
	for i := namespaces - deletedNamespaces; i < namespaces; i++ {
		if err := s.client.CoreV1().Namespaces().Delete(ctx, namespaceName(i), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	policies := map[fate]metav1.DeletionPropagation{
		goesInBackground: metav1.DeletePropagationBackground,
		goesInForeground: metav1.DeletePropagationForeground,
		leavesOrphans:    metav1.DeletePropagationOrphan,
	}
	for _, a := range s.apps {
		if policy, ok := policies[a.fate]; ok {
			if err := s.client.AppsV1().Deployments(a.namespace).Delete(ctx, a.name,
				metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				return err
			}
		}
	}
	return s.wait(ctx, func(now state) string { return cmp.Diff(s.want(), now.describe()) })
}

// rollingOut describes what is missing until all apps run in their old or new version.
func (s *story) rollingOut(now state, updated bool) string {
	deployments := map[string]*appsv1.Deployment{}
	for _, d := range now.deployments {
		deployments[key(d)] = d
	}
	for _, a := range s.apps {
		d := deployments[a.namespace+"/"+a.name]
		want := fmt.Sprintf("%d available of %s", a.replicas, a.image(updated))
		if d == nil {
			return a.name + " does not exist"
		} else if is := describeDeployment(d); is != want {
			return a.name + ": " + is
		}
	}
	ready := 0
	for _, p := range now.pods {
		if p.Namespace != metav1.NamespaceDefault && running(p) {
			ready++
		}
	}
	if ready != s.pods {
		return fmt.Sprintf("%d of %d pods run", ready, s.pods)
	}
	return ""
}

// updatedPods counts the running pods with a new image.
func updatedPods(now state) int {
	n := 0
	for _, p := range now.pods {
		if running(p) && strings.HasSuffix(p.Spec.Containers[0].Image, ":2") {
			n++
		}
	}
	return n
}

// wait waits until missing returns "" for the state that the informers have.
func (s *story) wait(ctx context.Context, missing func(state) string) error {
	return poll(ctx, pollInterval, func() string {
		now, err := s.state()
		if err != nil {
			return err.Error()
		}
		return missing(now)
	})
}

// poll calls missing until it returns "".
func poll(ctx context.Context, every time.Duration, missing func() string) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		what := missing()
		if what == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), what)
		}
	}
}

// each calls do for the numbers below n, several at a time.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// update changes the image.
func (a app) update(ctx context.Context, client kubernetes.Interface) error {
	patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, a.image(true))
	_, err := client.AppsV1().Deployments(a.namespace).Patch(ctx, a.name, types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	return err
}

// create creates the Deployment, its Service and its PodDisruptionBudget.
func (a app) create(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().Services(a.namespace).Create(ctx, a.service(), metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets(a.namespace).Create(ctx, a.budget(),
		metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.AppsV1().Deployments(a.namespace).Create(ctx, a.deployment(), metav1.CreateOptions{})
	return err
}
