package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.github.keepwatch.junit.KeepwatchExtension;
import io.github.keepwatch.junit.Kubeconfig;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** A server with flags. */
class SimulatedTest {
  @RegisterExtension static KeepwatchExtension keepwatch = new KeepwatchExtension("--simulate");

  @Test
  void aNodeIsThere(@Kubeconfig Path kubeconfig) throws Exception {
    var nodes = new ConfigMaps(kubeconfig).core.listNode().execute().getItems();
    assertEquals(1, nodes.size());
    assertEquals("node-1", nodes.get(0).getMetadata().getName());
  }
}
