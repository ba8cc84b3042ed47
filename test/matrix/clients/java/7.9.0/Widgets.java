import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.api.model.SecretBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

/**
 * Runs an operator of Widgets with informers, which does what ../../javascript/widgets.mjs does: a ConfigMap with the
 * Widget's size and a Secret, which die with it, and a ConfigMap without an owner, which a finalizer deletes.
 *
 * <p>KUBECONFIG=FILE java Widgets [--bug NAME]
 */
final class Widgets {
  private static final List<String> BUGS = List.of("", "generate-name", "stale-cache", "finalizer", "status-first",
      "hot-loop", "event-only", "fight", "intermediate", "password", "put", "right");
  private static final String NAMESPACE = "default";
  private static final String FINALIZER = "example.com/log";

  private final String bug;
  private final KubernetesClient client;
  private final NonNamespaceOperation<GenericKubernetesResource, ?, Resource<GenericKubernetesResource>> widgets;

  // One thread reconciles. queued has the names that wait for it.
  private final ScheduledExecutorService worker = Executors.newSingleThreadScheduledExecutor();
  private final Set<String> queued = ConcurrentHashMap.newKeySet();
  private final Map<String, Integer> failures = new HashMap<>();
  private final Set<String> created = new HashSet<>();
  private boolean conflict;

  Widgets(String bug) {
    this.bug = bug;
    // Without retries of the client, so that the operator sees each error.
    Config config = new ConfigBuilder(Config.autoConfigure(null)).withRequestRetryBackoffLimit(0).build();
    client = new KubernetesClientBuilder().withConfig(config).build();
    MixedOperation<GenericKubernetesResource, ?, Resource<GenericKubernetesResource>> all =
        client.genericKubernetesResources(new ResourceDefinitionContext.Builder()
            .withGroup("example.com").withVersion("v1").withKind("Widget").withPlural("widgets").withNamespaced(true)
            .build());
    widgets = all.inNamespace(NAMESPACE);
  }

  private static String name(HasMetadata o) {
    return o.getMetadata().getName();
  }

  private static ObjectMeta owned(GenericKubernetesResource w) {
    return new ObjectMetaBuilder().withName(name(w)).addToLabels("widget", name(w)).addNewOwnerReference()
        .withApiVersion("example.com/v1").withKind("Widget").withName(name(w)).withUid(w.getMetadata().getUid())
        .endOwnerReference().build();
  }

  @SuppressWarnings("unchecked")
  private static Map<String, Object> field(GenericKubernetesResource w, String name) {
    return (Map<String, Object>) w.getAdditionalProperties().getOrDefault(name, Map.of());
  }

  private static String size(GenericKubernetesResource w) {
    return String.valueOf(field(w, "spec").get("size"));
  }

  private static ConfigMap sized(GenericKubernetesResource w) {
    return new ConfigMapBuilder().withMetadata(owned(w)).addToData("size", size(w)).build();
  }

  /** Returns an existing child, unless that is one of an earlier Widget. */
  private static <T extends HasMetadata> T own(GenericKubernetesResource w, T child) {
    if (child != null && child.getMetadata().getOwnerReferences().stream()
        .noneMatch(o -> o.getUid().equals(w.getMetadata().getUid()))) {
      throw new IllegalStateException("the child of an earlier Widget is still there");
    }
    return child;
  }

  private NonNamespaceOperation<ConfigMap, ?, Resource<ConfigMap>> maps() {
    return client.configMaps().inNamespace(NAMESPACE);
  }

  /** Looks for the ConfigMap of a Widget at resourceVersion 0: what is read there may be old. */
  private boolean isCached(GenericKubernetesResource w) {
    return client.configMaps().inNamespace(NAMESPACE).withLabel("widget", name(w))
        .list(new ListOptionsBuilder().withResourceVersion("0").build()).getItems().stream()
        .flatMap(o -> o.getMetadata().getOwnerReferences().stream())
        .anyMatch(o -> o.getUid().equals(w.getMetadata().getUid()));
  }

  private void configMap(GenericKubernetesResource w) {
    if (bug.equals("generate-name") || bug.equals("stale-cache")) {
      if (bug.equals("stale-cache") && isCached(w)) {
        return;
      }
      if (!created.contains(w.getMetadata().getUid())) {
        ConfigMap child = sized(w);
        child.getMetadata().setName(null);
        child.getMetadata().setGenerateName(name(w) + "-");
        maps().resource(child).create();
        created.add(w.getMetadata().getUid());
      }
      return;
    }
    ConfigMap have = own(w, maps().withName(name(w)).get());
    if (have == null) {
      maps().resource(sized(w)).create();
    } else if (bug.equals("fight") && !Objects.requireNonNullElse(have.getMetadata().getAnnotations(), Map.of()).isEmpty()) {
      ConfigMap child = sized(w);
      child.getMetadata().setResourceVersion(have.getMetadata().getResourceVersion());
      maps().resource(child).update();
    } else if (!size(w).equals(have.getData().get("size"))) {
      if (bug.equals("put")) {
        have = sized(w);
      } else {
        have.setData(Map.of("size", size(w)));
      }
      maps().resource(have).update();
    }
  }

  private void log(GenericKubernetesResource w) {
    if (maps().withName(name(w) + "-log").get() == null) {
      maps().resource(new ConfigMapBuilder().withNewMetadata().withName(name(w) + "-log")
          .addToLabels("widget", name(w)).endMetadata().build()).create();
    }
  }

  private String secret(GenericKubernetesResource w, String password) {
    var secrets = client.secrets().inNamespace(NAMESPACE);
    Secret have = own(w, secrets.withName(name(w)).get());
    if (have == null) {
      have = secrets.resource(new SecretBuilder().withMetadata(owned(w)).addToData("password", password).build()).create();
    }
    return have.getData().get("password");
  }

  private GenericKubernetesResource status(GenericKubernetesResource w, Map<String, Object> changes) {
    Map<String, Object> status = new HashMap<>(field(w, "status"));
    if (status.entrySet().containsAll(changes.entrySet())) {
      return w;
    }
    status.putAll(changes);
    w.setAdditionalProperty("status", status);
    return widgets.resource(w).updateStatus();
  }

  private void setFinalizers(GenericKubernetesResource w, List<String> finalizers) {
    w.getMetadata().setFinalizers(finalizers);
    widgets.resource(w).update();
  }

  private boolean deleteLog(String widget) {
    return !maps().withName(widget + "-log").delete().isEmpty();
  }

  /** Brings the children of a Widget, whose state is read from the server, to what it says. */
  private void reconcile(String name) {
    GenericKubernetesResource w = widgets.withName(name).get();
    if (w == null) {
      return;
    }
    boolean guarded = w.getMetadata().getFinalizers().contains(FINALIZER);
    if (w.getMetadata().getDeletionTimestamp() != null) {
      if (guarded && (deleteLog(name) || !bug.equals("finalizer"))) {
        setFinalizers(w, List.of());
      }
      return;
    }
    if (Set.of("status-first", "generate-name", "stale-cache").contains(bug)
        && "Ready".equals(field(w, "status").get("phase"))) {
      return;
    }
    if (bug.equals("status-first")) {
      w = status(w, Map.of("phase", "Ready"));
    }
    if (conflict) {
      status(w, Map.of("looks", (int) field(w, "status").getOrDefault("looks", 0) + 1));
      again(name, 5);
      return;
    }
    if (!guarded && !bug.equals("event-only") && !bug.equals("intermediate")) {
      setFinalizers(w, List.of(FINALIZER));
      return;
    }
    configMap(w);
    if (!bug.equals("intermediate")) {
      log(w);
    }
    byte[] random = new byte[15];
    new SecureRandom().nextBytes(random);
    String fresh = Base64.getEncoder().encodeToString(random);
    if (bug.equals("password") && field(w, "status").get("password") == null) {
      w = status(w, Map.of("password", fresh));
    }
    String password = secret(w, fresh);
    status(w, bug.equals("password") ? Map.of("phase", "Ready") : Map.of("phase", "Ready", "password", password));
  }

  private void work(String name) {
    queued.remove(name);
    try {
      reconcile(name);
      failures.remove(name);
    } catch (RuntimeException failure) {
      System.err.println(name + ": " + failure);
      int code = failure instanceof KubernetesClientException ? ((KubernetesClientException) failure).getCode() : 0;
      conflict |= code == 409 && bug.equals("hot-loop");
      if (code == 500 && bug.equals("right")) {
        try {
          client.pods().inNamespace(NAMESPACE).withLabel("widget", name).list();
        } catch (KubernetesClientException ignored) {
          // It is only for the message.
        }
      }
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
        enqueue(name(o));
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
      if (!bug.equals("intermediate")) {
        changed(o);
      }
    }

    @Override
    public void onDelete(T o, boolean unknown) {
      if (bug.equals("event-only") && o instanceof GenericKubernetesResource) {
        worker.execute(() -> deleteLog(name(o)));
      }
      changed(o);
    }
  }

  void run() throws InterruptedException {
    widgets.inform(new Trigger<>());
    if (!bug.equals("intermediate")) {
      maps().inform(new Trigger<>());
      client.secrets().inNamespace(NAMESPACE).inform(new Trigger<>());
    }
    Thread.currentThread().join();
  }

  public static void main(String[] args) throws InterruptedException {
    String bug = args.length > 1 ? args[1] : "";
    if (!BUGS.contains(bug)) {
      System.err.println("--bug " + bug + ": want one of " + BUGS);
      System.exit(2);
    }
    new Widgets(bug).run();
  }
}
