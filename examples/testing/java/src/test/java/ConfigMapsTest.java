import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.fabric8.kubeapitest.junit.EnableKubeAPIServer;
import io.fabric8.kubeapitest.junit.KubeConfig;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.KubernetesClientException;
import org.junit.jupiter.api.Test;

/**
 * A test with the programs of keepwatch in kube-api-test's folder:
 *
 * <pre>
 * keepwatch assets --dir ~/.kubeapitest/k8s/1.37.2-linux-amd64
 * mvn test
 * </pre>
 */
@EnableKubeAPIServer
class ConfigMapsTest {
  @KubeConfig static String kubeConfig;

  @Test
  void anOldVersionCannotReplaceANewerOne() {
    try (KubernetesClient client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeConfig)).build()) {
      var first = client.resource(new ConfigMapBuilder().withNewMetadata().withNamespace("default").withName("a").endMetadata().build()).create();
      client.resource(new ConfigMapBuilder(first).addToData("k", "1").build()).update();
      var late = new ConfigMapBuilder(first).addToData("k", "2").build();
      var error = assertThrows(KubernetesClientException.class, () -> client.resource(late).update());
      assertEquals(409, error.getCode());
    }
  }
}
