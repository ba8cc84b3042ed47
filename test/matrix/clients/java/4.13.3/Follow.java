import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.DefaultKubernetesClient;
import io.fabric8.kubernetes.client.dsl.base.OperationContext;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedInformerFactory;
import java.nio.file.Files;
import java.nio.file.Paths;

/**
 * Follows the ConfigMaps of a namespace with an informer. This version lists once in each resync
 * period, and every five seconds where that is 0.
 *
 * <p>java Follow KUBECONFIG NAMESPACE
 */
final class Follow {
  private static final long RESYNC_MILLIS = 60 * 60 * 1000;

  public static void main(String[] args) throws Exception {
    String kubeconfig = new String(Files.readAllBytes(Paths.get(args[0])));
    SharedInformerFactory informers = new DefaultKubernetesClient(Config.fromKubeconfig(kubeconfig)).informers();
    informers.sharedIndexInformerFor(ConfigMap.class, ConfigMapList.class,
        new OperationContext().withNamespace(args[1]), RESYNC_MILLIS).addEventHandler(new ResourceEventHandler<ConfigMap>() {
          @Override
          public void onAdd(ConfigMap object) {
            Report.event("ADDED", object);
          }

          @Override
          public void onUpdate(ConfigMap before, ConfigMap object) {
            Report.event("MODIFIED", object);
          }

          @Override
          public void onDelete(ConfigMap object, boolean unknown) {
            Report.event("DELETED", object);
          }
        });
    informers.addSharedInformerEventListener(Line::error);
    informers.startAllRegisteredInformers();
    Thread.currentThread().join();
  }
}
