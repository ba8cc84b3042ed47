import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.io.File;

/**
 * Follows the ConfigMaps of a namespace with an informer.
 *
 * <p>java Follow KUBECONFIG NAMESPACE
 */
final class Follow {
  public static void main(String[] args) throws Exception {
    KubernetesClient client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(new File(args[0]))).build();
    client.configMaps().inNamespace(args[1]).inform(new ResourceEventHandler<ConfigMap>() {
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
    Thread.currentThread().join();
  }
}
