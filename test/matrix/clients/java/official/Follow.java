import io.kubernetes.client.informer.ResourceEventHandler;
import io.kubernetes.client.informer.SharedIndexInformer;
import io.kubernetes.client.informer.SharedInformerFactory;
import io.kubernetes.client.openapi.ApiClient;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ConfigMapList;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.util.CallGeneratorParams;
import io.kubernetes.client.util.Config;
import java.util.concurrent.TimeUnit;

/**
 * Follows the ConfigMaps of a namespace with the informer of Kubernetes' Java client, as its example
 * shows: without a read timeout.
 *
 * <p>java Follow KUBECONFIG NAMESPACE
 */
final class Follow {
  public static void main(String[] args) throws Exception {
    ApiClient client = Config.fromConfig(args[0]);
    client.setHttpClient(client.getHttpClient().newBuilder().readTimeout(0, TimeUnit.SECONDS).build());
    CoreV1Api api = new CoreV1Api(client);
    SharedInformerFactory factory = new SharedInformerFactory(client);
    SharedIndexInformer<V1ConfigMap> informer = factory.sharedIndexInformerFor(
        (CallGeneratorParams p) -> api.listNamespacedConfigMap(args[1])
            .resourceVersion(p.resourceVersion).timeoutSeconds(p.timeoutSeconds).watch(p.watch).buildCall(null),
        V1ConfigMap.class, V1ConfigMapList.class);
    informer.addEventHandler(new ResourceEventHandler<V1ConfigMap>() {
      @Override
      public void onAdd(V1ConfigMap object) {
        event("ADDED", object);
      }

      @Override
      public void onUpdate(V1ConfigMap before, V1ConfigMap object) {
        event("MODIFIED", object);
      }

      @Override
      public void onDelete(V1ConfigMap object, boolean unknown) {
        event("DELETED", object);
      }
    });
    factory.startAllRegisteredInformers();
    Thread.currentThread().join();
  }

  private static void event(String type, V1ConfigMap object) {
    V1ObjectMeta m = object.getMetadata();
    Line.event(type, m.getName(), m.getUid(), m.getResourceVersion());
  }
}
