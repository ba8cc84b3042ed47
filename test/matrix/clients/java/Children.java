import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.GenericKubernetesResourceList;
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
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * Makes the children of Widgets, as ../javascript/widgets.mjs does: a ConfigMap with the Widget's size and a Secret, which
 * die with it, and a ConfigMap without an owner, its log. One thread at a time calls it.
 */
final class Children {
  private static final List<String> BUGS = List.of("", "generate-name", "stale-cache", "finalizer", "status-first",
      "hot-loop", "event-only", "fight", "intermediate", "password", "put", "right", "stale-list", "cross-namespace",
      "default");
  static final String NAMESPACE = "default";
  static final String FINALIZER = "example.com/log";

  final String bug;
  final KubernetesClient client;
  final NonNamespaceOperation<GenericKubernetesResource, GenericKubernetesResourceList, Resource<GenericKubernetesResource>>
      widgets;

  private final Set<String> created = new HashSet<>();
  private boolean conflict;

  /** Asks for another call soon. */
  static final class Again extends RuntimeException {}

  Children(String[] args) {
    bug = args.length > 1 ? args[1] : "";
    if (!BUGS.contains(bug)) {
      System.err.println("--bug " + bug + ": want one of " + BUGS);
      System.exit(2);
    }
    // Without retries of the client, so that the operator sees each error.
    Config config = new ConfigBuilder(Config.autoConfigure(null)).withRequestRetryBackoffLimit(0).build();
    client = new KubernetesClientBuilder().withConfig(config).build();
    widgets = client.genericKubernetesResources(new ResourceDefinitionContext.Builder()
        .withGroup("example.com").withVersion("v1").withKind("Widget").withPlural("widgets").withNamespaced(true).build())
        .inNamespace(NAMESPACE);
    if (bug.equals("stale-list")) {
      sweep();
    }
  }

  boolean has(String... bugs) {
    return List.of(bugs).contains(bug);
  }

  static String name(HasMetadata o) {
    return o.getMetadata().getName();
  }

  private static ObjectMeta owned(GenericKubernetesResource w) {
    return new ObjectMetaBuilder().withName(name(w)).addToLabels("widget", name(w)).addNewOwnerReference()
        .withApiVersion("example.com/v1").withKind("Widget").withName(name(w)).withUid(w.getMetadata().getUid())
        .endOwnerReference().build();
  }

  @SuppressWarnings("unchecked")
  static Map<String, Object> field(GenericKubernetesResource w, String name) {
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

  NonNamespaceOperation<ConfigMap, ?, Resource<ConfigMap>> maps() {
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

  /** Returns the ConfigMaps in the namespace of those without an owner. */
  private NonNamespaceOperation<ConfigMap, ?, Resource<ConfigMap>> logs() {
    return bug.equals("cross-namespace") ? client.configMaps().inNamespace("logs") : maps();
  }

  private void log(GenericKubernetesResource w) {
    if (logs().withName(name(w) + "-log").get() == null) {
      logs().resource(new ConfigMapBuilder().withNewMetadata().withName(name(w) + "-log")
          .addToLabels("widget", name(w)).endMetadata().build()).create();
    }
  }

  private String secret(GenericKubernetesResource w, String password) {
    var secrets = client.secrets().inNamespace(NAMESPACE);
    Secret have = own(w, secrets.withName(name(w)).get());
    Secret want = new SecretBuilder().withMetadata(owned(w)).addToData("password", password).build();
    if (have == null) {
      have = secrets.resource(want).create();
    } else if (bug.equals("default") && !Objects.equals(have.getType(), want.getType())) { // the server has set it
      want.setData(have.getData());
      want.getMetadata().setResourceVersion(have.getMetadata().getResourceVersion());
      secrets.resource(want).update();
      throw new Again();
    }
    return have.getData().get("password");
  }

  GenericKubernetesResource status(GenericKubernetesResource w, Map<String, Object> changes) {
    Map<String, Object> status = new HashMap<>(field(w, "status"));
    if (status.entrySet().containsAll(changes.entrySet())) {
      return w;
    }
    status.putAll(changes);
    w.setAdditionalProperty("status", status);
    return widgets.resource(w).updateStatus();
  }

  boolean deleteLog(String widget) {
    return !logs().withName(widget + "-log").delete().isEmpty();
  }

  /** Deletes the logs of Widgets that it does not see. What is read at resourceVersion 0 may be old. */
  private void sweep() {
    Set<String> seen = new HashSet<>();
    widgets.list(new ListOptionsBuilder().withResourceVersion("0").build()).getItems().forEach(w -> seen.add(name(w)));
    for (ConfigMap o : client.configMaps().inNamespace(NAMESPACE).withLabel("widget").list().getItems()) {
      String widget = o.getMetadata().getLabels().get("widget");
      if (name(o).equals(widget + "-log") && !seen.contains(widget)) {
        deleteLog(widget);
      }
    }
  }

  /** Makes the children of a Widget, and returns changes of its status. */
  Map<String, Object> reconcile(GenericKubernetesResource w) {
    if (has("status-first", "generate-name", "stale-cache") && "Ready".equals(field(w, "status").get("phase"))) {
      return Map.of();
    }
    if (bug.equals("status-first")) {
      w = status(w, Map.of("phase", "Ready"));
    }
    if (conflict) {
      status(w, Map.of("looks", (int) field(w, "status").getOrDefault("looks", 0) + 1));
      throw new Again();
    }
    byte[] random = new byte[15];
    new SecureRandom().nextBytes(random);
    String fresh = Base64.getEncoder().encodeToString(random);
    if (bug.equals("password") && field(w, "status").get("password") == null) {
      w = status(w, Map.of("password", fresh));
    }
    try {
      configMap(w);
      if (!bug.equals("intermediate")) {
        log(w);
      }
      String password = secret(w, fresh);
      return bug.equals("password") ? Map.of("phase", "Ready") : Map.of("phase", "Ready", "password", password);
    } catch (KubernetesClientException failure) {
      conflict |= failure.getCode() == 409 && bug.equals("hot-loop");
      if (failure.getCode() == 500 && bug.equals("right")) {
        try {
          client.pods().inNamespace(NAMESPACE).withLabel("widget", name(w)).list();
        } catch (KubernetesClientException ignored) {
          // It is only for the message.
        }
      }
      throw failure;
    }
  }
}
