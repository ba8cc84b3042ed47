package example;

import io.github.keepwatch.Event;
import io.kubernetes.client.openapi.ApiException;
import io.kubernetes.client.openapi.JSON;
import io.kubernetes.client.openapi.apis.CoreV1Api;
import io.kubernetes.client.openapi.models.V1ConfigMap;
import io.kubernetes.client.openapi.models.V1ObjectMeta;
import io.kubernetes.client.util.ClientBuilder;
import io.kubernetes.client.util.KubeConfig;
import java.io.FileReader;
import java.io.IOException;
import java.nio.file.Path;
import java.util.Map;

/** The ConfigMaps of the namespace default. */
final class ConfigMaps {
  private static final com.google.gson.Gson gson = JSON.getGson();
  final CoreV1Api core;

  ConfigMaps(Path kubeconfig) throws IOException {
    try (var in = new FileReader(kubeconfig.toFile())) {
      core = new CoreV1Api(ClientBuilder.kubeconfig(KubeConfig.loadKubeConfig(in)).build());
    }
  }

  V1ConfigMap create(String app, String name, Map<String, String> data) throws ApiException {
    var metadata = new V1ObjectMeta().name(name).labels(Map.of("app", app));
    return core.createNamespacedConfigMap("default", new V1ConfigMap().metadata(metadata).data(data)).execute();
  }

  void delete(String name) throws ApiException {
    core.deleteNamespacedConfigMap(name, "default").execute();
  }

  static V1ConfigMap decoded(Event.Change change) {
    return change.object(json -> gson.fromJson(json, V1ConfigMap.class));
  }
}
