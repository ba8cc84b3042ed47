import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Runs an operator of Widgets with informers. A finalizer deletes the log.
 *
 * <p>KUBECONFIG=FILE java Widgets [--bug NAME]
 */
final class Widgets {
  private final Children children;

  // One thread reconciles. queued has the names that wait for it.
  private final ScheduledExecutorService worker = Executors.newSingleThreadScheduledExecutor();
  private final Set<String> queued = ConcurrentHashMap.newKeySet();
  private final Map<String, Integer> failures = new HashMap<>();

  Widgets(Children children) {
    this.children = children;
  }

  private void setFinalizers(GenericKubernetesResource w, List<String> finalizers) {
    w.getMetadata().setFinalizers(finalizers);
    children.widgets.resource(w).update();
  }

  /** Brings the children of a Widget, whose state is read from the server, to what it says. */
  private void reconcile(String name) {
    GenericKubernetesResource w = children.widgets.withName(name).get();
    if (w == null) {
      if (children.has("cross-namespace")) {
        children.deleteLog(name);
      }
      return;
    }
    boolean guarded = w.getMetadata().getFinalizers().contains(Children.FINALIZER);
    if (w.getMetadata().getDeletionTimestamp() != null) {
      if (guarded && (children.deleteLog(name) || !children.has("finalizer"))) {
        setFinalizers(w, List.of());
      }
    } else if (!guarded && !children.has("event-only", "intermediate", "cross-namespace")) {
      setFinalizers(w, List.of(Children.FINALIZER));
    } else {
      Map<String, Object> changes = children.reconcile(w);
      children.status(w, changes);
    }
  }

  private void work(String name) {
    queued.remove(name);
    try {
      reconcile(name);
      failures.remove(name);
    } catch (Children.Again soon) {
      again(name, 5);
    } catch (RuntimeException failure) {
      System.err.println(name + ": " + failure);
      int n = failures.merge(name, 1, Integer::sum);
      again(name, Math.min(25L << Math.min(n, 10), 1000));
    }
  }

  private void again(String name, long milliseconds) {
    worker.schedule(() -> enqueue(name), milliseconds, TimeUnit.MILLISECONDS);
  }

  private void enqueue(String name) {
    if (name != null && queued.add(name)) {
      worker.execute(() -> work(name));
    }
  }

  /** Enqueues the Widget of each object that changes. */
  private class Trigger<T extends HasMetadata> implements ResourceEventHandler<T> {
    void changed(T o) {
      if (o instanceof GenericKubernetesResource) {
        enqueue(Children.name(o));
      } else if (o.getMetadata().getLabels() != null) {
        enqueue(o.getMetadata().getLabels().get("widget"));
      }
    }

    @Override
    public void onAdd(T o) {
      changed(o);
    }

    @Override
    public void onUpdate(T before, T o) {
      if (!children.has("intermediate")) {
        changed(o);
      }
    }

    @Override
    public void onDelete(T o, boolean unknown) {
      if (children.has("event-only") && o instanceof GenericKubernetesResource) {
        worker.execute(() -> children.deleteLog(Children.name(o)));
      }
      changed(o);
    }
  }

  void run() throws InterruptedException {
    children.widgets.inform(new Trigger<>());
    if (!children.has("intermediate")) {
      children.maps().inform(new Trigger<>());
      children.client.secrets().inNamespace(Children.NAMESPACE).inform(new Trigger<>());
    }
    Thread.currentThread().join();
  }

  public static void main(String[] args) throws InterruptedException {
    new Widgets(new Children(args)).run();
  }
}
