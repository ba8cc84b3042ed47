import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.DefaultKubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.Watcher;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.SynchronousQueue;

/**
 * Follows the ConfigMaps of a namespace by a list and a watch, which goes over a WebSocket. The
 * client resumes a watch by itself; when it closes the watch, this program lists again. Version
 * 4.2.0 has no informer; the program runs with 4.13.3, too.
 *
 * <p>java Follow KUBECONFIG NAMESPACE
 */
final class Follow {
  public static void main(String[] args) throws Exception {
    String kubeconfig = new String(Files.readAllBytes(Paths.get(args[0])));
    KubernetesClient client = new DefaultKubernetesClient(Config.fromKubeconfig(kubeconfig));
    while (true) {
      try {
        follow(client, args[1]);
      } catch (KubernetesClientException e) {
        Line.error(e);
      }
      Thread.sleep(1000);
    }
  }

  /** Returns when the client has closed the watch. */
  private static void follow(KubernetesClient client, String namespace) throws InterruptedException {
    ConfigMapList list = client.configMaps().inNamespace(namespace).list();
    Report.listed(list.getItems());
    SynchronousQueue<String> closed = new SynchronousQueue<>();
    client.configMaps().inNamespace(namespace).watch(list.getMetadata().getResourceVersion(), new Watcher<ConfigMap>() {
      @Override
      public void eventReceived(Action action, ConfigMap object) {
        Report.event(action.name(), object);
      }

      @Override
      public void onClose(KubernetesClientException cause) {
        Line.error("the watch is closed: " + cause);
        try {
          closed.put("closed");
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
        }
      }
    });
    closed.take();
  }
}
