import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.api.model.Secret;
import io.fabric8.kubernetes.client.CustomResource;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.model.annotation.Group;
import io.fabric8.kubernetes.model.annotation.Version;
import io.javaoperatorsdk.operator.Operator;
import io.javaoperatorsdk.operator.api.config.informer.InformerEventSourceConfiguration;
import io.javaoperatorsdk.operator.api.reconciler.Cleaner;
import io.javaoperatorsdk.operator.api.reconciler.Context;
import io.javaoperatorsdk.operator.api.reconciler.DeleteControl;
import io.javaoperatorsdk.operator.api.reconciler.EventSourceContext;
import io.javaoperatorsdk.operator.api.reconciler.Reconciler;
import io.javaoperatorsdk.operator.api.reconciler.UpdateControl;
import io.javaoperatorsdk.operator.processing.event.ResourceID;
import io.javaoperatorsdk.operator.processing.event.source.EventSource;
import io.javaoperatorsdk.operator.processing.event.source.informer.InformerEventSource;
import io.javaoperatorsdk.operator.processing.retry.GenericRetry;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Runs an operator of Widgets with the Java Operator SDK. Its cleaner deletes the log.
 *
 * <p>KUBECONFIG=FILE java Widgets [--bug NAME]
 */
final class Widgets implements Reconciler<Widgets.Widget> {
  @Group("example.com")
  @Version("v1")
  public static final class Widget extends CustomResource<Map<String, Object>, Map<String, Object>> implements Namespaced {
    @Override
    protected Map<String, Object> initSpec() {
      return null;
    }

    @Override
    protected Map<String, Object> initStatus() {
      return null;
    }
  }

  private final Children children;

  Widgets(Children children) {
    this.children = children;
  }

  @Override
  public List<EventSource<?, Widget>> prepareEventSources(EventSourceContext<Widget> context) {
    return List.of(source(ConfigMap.class, context), source(Secret.class, context));
  }

  private static <T extends HasMetadata> InformerEventSource<T, Widget> source(
      Class<T> type, EventSourceContext<Widget> context) {
    return new InformerEventSource<>(InformerEventSourceConfiguration.from(type, Widget.class)
        .withNamespaces(Children.NAMESPACE).withLabelSelector("widget")
        .withSecondaryToPrimaryMapper(
            o -> Set.of(new ResourceID(o.getMetadata().getLabels().get("widget"), Children.NAMESPACE)))
        .build(), context);
  }

  @Override
  public synchronized UpdateControl<Widget> reconcile(Widget cached, Context<Widget> context) {
    GenericKubernetesResource w = children.widgets.withName(Children.name(cached)).get();
    if (w == null || w.getMetadata().getDeletionTimestamp() != null) {
      return UpdateControl.noUpdate();
    }
    Map<String, Object> changes;
    try {
      changes = children.reconcile(w);
    } catch (Children.Again soon) {
      return UpdateControl.<Widget>noUpdate().rescheduleAfter(5, TimeUnit.MILLISECONDS);
    }
    Map<String, Object> have = Children.field(w, "status");
    if (have.entrySet().containsAll(changes.entrySet())) {
      return UpdateControl.noUpdate();
    }
    // It is applied on the server.
    Widget change = new Widget();
    change.setMetadata(new ObjectMetaBuilder().withName(Children.name(w)).withNamespace(Children.NAMESPACE).build());
    change.setStatus(new HashMap<>(have));
    change.getStatus().putAll(changes);
    return UpdateControl.patchStatus(change);
  }

  DeleteControl clean(Widget w) {
    boolean gone = children.deleteLog(Children.name(w));
    return gone || !children.has("finalizer") ? DeleteControl.defaultDelete() : DeleteControl.noFinalizerRemoval();
  }

  /** Widgets with a finalizer. */
  private static final class Guarded implements Reconciler<Widget>, Cleaner<Widget> {
    private final Widgets widgets;

    Guarded(Widgets widgets) {
      this.widgets = widgets;
    }

    @Override
    public List<EventSource<?, Widget>> prepareEventSources(EventSourceContext<Widget> context) {
      return widgets.prepareEventSources(context);
    }

    @Override
    public UpdateControl<Widget> reconcile(Widget w, Context<Widget> context) {
      return widgets.reconcile(w, context);
    }

    @Override
    public DeleteControl cleanup(Widget w, Context<Widget> context) {
      return widgets.clean(w);
    }
  }

  /** Deletes the log of a Widget when it sees that the Widget is gone. */
  private static final class Gone implements ResourceEventHandler<GenericKubernetesResource> {
    private final Children children;

    Gone(Children children) {
      this.children = children;
    }

    @Override
    public void onAdd(GenericKubernetesResource w) {}

    @Override
    public void onUpdate(GenericKubernetesResource before, GenericKubernetesResource w) {}

    @Override
    public void onDelete(GenericKubernetesResource w, boolean unknown) {
      children.deleteLog(Children.name(w));
    }
  }

  public static void main(String[] args) throws InterruptedException {
    Children children = new Children(args);
    Operator operator = new Operator(
        o -> o.withKubernetesClient(children.client).withStopOnInformerErrorDuringStartup(false));
    Widgets widgets = new Widgets(children);
    boolean guarded = !children.has("event-only", "intermediate", "cross-namespace");
    operator.register(guarded ? new Guarded(widgets) : widgets, o -> {
      o.settingNamespaces(Set.of(Children.NAMESPACE));
      o.withRetry(new GenericRetry().setInitialInterval(50).setMaxInterval(1000).setMaxAttempts(-1));
      if (guarded) {
        o.withFinalizer(Children.FINALIZER);
      }
      if (children.has("intermediate")) {
        o.withOnUpdateFilter((before, w) -> false);
      }
    });
    operator.start();
    if (children.has("event-only", "cross-namespace")) {
      children.widgets.inform(new Gone(children));
    }
    Thread.currentThread().join();
  }
}
