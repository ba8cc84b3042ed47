package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.keepwatch.KeepwatchException;
import io.github.keepwatch.Program;
import io.github.keepwatch.Server;
import io.github.keepwatch.junit.KeepwatchExtension;
import io.github.keepwatch.junit.Kubeconfig;
import io.kubernetes.client.openapi.ApiException;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests with the extension, as users write them, and of what it promises. */
@ExtendWith(KeepwatchExtension.class)
class ServerTest {
  @Test
  void anOldVersionCannotReplaceANewerOne(@Kubeconfig Path kubeconfig) throws Exception {
    var configMaps = new ConfigMaps(kubeconfig);
    var first = configMaps.create("server", "a", Map.of());
    configMaps.core.replaceNamespacedConfigMap("a", "default", first.data(Map.of("k", "1"))).execute();
    var late = configMaps.core.replaceNamespacedConfigMap("a", "default", first.data(Map.of("k", "2")));
    assertEquals(409, assertThrows(ApiException.class, late::execute).getCode());
  }

  @Test
  void parametersReferToOneServer(
      Server server, @Kubeconfig Path path, @Kubeconfig String text, @Kubeconfig File file) {
    assertEquals(server.kubeconfig(), path);
    assertEquals(path.toString(), text);
    assertEquals(path.toFile(), file);
    assertTrue(new String(server.certificateAuthority()).contains("BEGIN CERTIFICATE"));
    assertFalse(server.token().isEmpty());
  }

  @Test
  void aServerStops() throws IOException {
    Server server = Server.start("--simulate");
    assertTrue(accepts(server.url()));
    server.close();
    assertFalse(accepts(server.url()));
    assertFalse(Files.exists(server.kubeconfig()));
  }

  @Test
  void aWrongFlag() {
    var error = assertThrows(KeepwatchException.class, () -> Server.start("--nonsense"));
    assertTrue(error.getMessage().contains("unknown flag: --nonsense"), error.getMessage());
  }

  @ParameterizedTest
  @ValueSource(strings = {"123456", "true", "it's"})
  void aTokenThatYamlMayQuote(String token) {
    try (Server server = Server.start("--token", token)) {
      assertEquals(token, server.token());
    }
  }

  @Test
  void theServerOfAKilledProcessEnds() throws Throwable {
    Process process = Java.start(Endless.class);
    String url;
    try (var out = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
      url = out.readLine();
      assertTrue(accepts(url));
      process.destroyForcibly().waitFor();
    }
    Java.eventually(() -> assertFalse(accepts(url)));
  }

  @Test
  void programsOfOtherVersions() throws Exception {
    assertEquals("keepwatch", found("keepwatch v0.1.7 (go1.26.8, linux/amd64)"));
    assertEquals("keepwatch", found("keepwatch (devel) (go1.26.8, linux/amd64)"));
    assertEquals("keepwatch", found("keepwatch v0.1.0-3-g0123456 (go1.26.8, linux/amd64)"));
    String newer = found("keepwatch v0.2.0 (go1.26.8, linux/amd64)");
    String message = "is keepwatch v0.2.0, but this library is made for v0.1: install keepwatch v0.1, or version 0.2";
    assertTrue(newer.contains(message), newer);
    String other = found("watchkeeper");
    assertTrue(other.contains("is not keepwatch"), other);
    Files.delete(folder.resolve("keepwatch"));
    String none = found(null);
    assertTrue(none.contains("keepwatch is no program: install keepwatch v0.1, and put it on the PATH"), none);
  }

  @Test
  void anEmptyElementOfThePathIsTheWorkingDirectory() throws Exception {
    assertEquals("keepwatch", found("keepwatch v0.1.7 (go1.26.8, linux/amd64)"));
    var process = Java.command(Finding.class, "whole").directory(folder.toFile());
    process.environment().remove("KEEPWATCH");
    process.environment().put("PATH", ":/nonexistent");
    String path = new String(process.start().getInputStream().readAllBytes()).strip();
    assertEquals(folder.resolve("keepwatch").toRealPath().toString(), path); // which another PATH does not change
  }

  @TempDir Path folder;

  /** Returns what a process prints that finds a program on its PATH, which prints a version. */
  private String found(String version) throws Exception {
    if (version != null) {
      Path program = folder.resolve("keepwatch");
      Files.writeString(program, "#!/bin/sh\necho '" + version + "'\n");
      assertTrue(program.toFile().setExecutable(true));
    }
    var process = Java.command(Finding.class);
    process.environment().remove("KEEPWATCH");
    process.environment().put("PATH", folder.toString());
    return new String(process.start().getInputStream().readAllBytes()).strip();
  }

  /** A program that looks for keepwatch. */
  static final class Finding {
    public static void main(String[] args) {
      try {
        System.out.println(args.length > 0 ? Program.find() : Program.find().getFileName());
      } catch (KeepwatchException e) {
        System.out.println(e.getMessage());
      }
    }
  }

  /** A program that starts a server, and does not end. */
  static final class Endless {
    public static void main(String[] args) throws InterruptedException {
      System.out.println(Server.start().url());
      Thread.sleep(Long.MAX_VALUE);
    }
  }

  private static boolean accepts(String url) throws IOException {
    URI address = URI.create(url);
    try (var socket = new Socket(address.getHost(), address.getPort())) {
      return socket.isConnected();
    } catch (java.net.ConnectException e) {
      return false;
    }
  }
}
