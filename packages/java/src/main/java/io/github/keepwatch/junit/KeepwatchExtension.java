package io.github.keepwatch.junit;

import io.github.keepwatch.Server;
import java.io.File;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * An extension of JUnit 5 that starts a Kubernetes API server, and resolves parameters of the types {@link Server} and
 * {@link Kubeconfig}:
 *
 * <pre>{@code
 * @ExtendWith(KeepwatchExtension.class)
 * class PodsTest {
 *   @Test
 *   void test(@Kubeconfig Path kubeconfig) {
 * }</pre>
 *
 * <p>All classes with the same flags share a server, which starts at the first parameter. With flags it is registered:
 * {@code @RegisterExtension static KeepwatchExtension keepwatch = new KeepwatchExtension("--simulate")}.
 */
public final class KeepwatchExtension implements ParameterResolver {
  private static final Namespace NAMESPACE = Namespace.create(KeepwatchExtension.class);
  private static final Set<Class<?>> KUBECONFIGS = Set.of(Path.class, File.class, String.class);

  private final List<String> flags;

  /** Starts keepwatch serve without flags. */
  public KeepwatchExtension() {
    this(new String[0]);
  }

  /** Starts keepwatch serve with flags. */
  public KeepwatchExtension(String... flags) {
    this.flags = List.of(flags);
  }

  @Override
  public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
    Class<?> type = parameter.getParameter().getType();
    return type == Server.class || parameter.isAnnotated(Kubeconfig.class) && KUBECONFIGS.contains(type);
  }

  @Override
  public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
    Server server = server(context);
    Class<?> type = parameter.getParameter().getType();
    if (type == Server.class) {
      return server;
    }
    Path kubeconfig = server.kubeconfig();
    return type == Path.class ? kubeconfig : type == File.class ? kubeconfig.toFile() : kubeconfig.toString();
  }

  /** JUnit closes the store of the root at the end of all tests. */
  private Server server(ExtensionContext context) {
    Store store = context.getRoot().getStore(NAMESPACE);
    return store.getOrComputeIfAbsent(flags, KeepwatchExtension::start, Running.class).server;
  }

  private static Running start(List<String> flags) {
    return new Running(Server.start(flags.toArray(String[]::new)));
  }

  private record Running(Server server) implements Store.CloseableResource {
    @Override
    public void close() {
      server.close();
    }
  }
}
