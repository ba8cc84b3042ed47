import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/** An extension of JUnit: a Kubernetes API server for the tests of a class, which is keepwatch serve with its data in memory. */
class Keepwatch implements BeforeAllCallback, AfterAllCallback {
  private final String[] flags;
  private Path folder;
  private Process process;
  private KubernetesClient client;

  /** Flags of keepwatch serve, such as --simulate. */
  Keepwatch(String... flags) {
    this.flags = flags;
  }

  @Override
  public void beforeAll(ExtensionContext context) throws IOException, InterruptedException {
    folder = Files.createTempDirectory("keepwatch");
    Path kubeconfig = folder.resolve("kubeconfig"), log = folder.resolve("log");
    String program = System.getenv().getOrDefault("KEEPWATCH", "keepwatch");
    var command = new ArrayList<>(List.of(program, "serve", "--listen", "127.0.0.1:0", "--kubeconfig-out", kubeconfig.toString()));
    command.addAll(List.of(flags));
    process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
    while (!Files.exists(kubeconfig)) { // the server writes it when it is ready
      if (!process.isAlive()) {
        throw new IllegalStateException(Files.readString(log));
      }
      Thread.sleep(10);
    }
    client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeconfig.toFile())).build();
  }

  @Override
  public void afterAll(ExtensionContext context) throws IOException, InterruptedException {
    if (client != null) {
      client.close();
    }
    if (process != null) {
      process.destroy();
      process.waitFor();
    }
    for (String name : List.of("kubeconfig", "log")) {
      Files.deleteIfExists(folder.resolve(name));
    }
    Files.delete(folder);
  }

  /** The administrator's client. */
  KubernetesClient client() {
    return client;
  }

  /** Moves the time of simulated pods forward. The server needs the flag --simulate. */
  void advance(Duration by) {
    client.raw("/keepwatch/simulation/advance?by=" + by.toMillis() + "ms", "POST", null);
  }
}
