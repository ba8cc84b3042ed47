package io.github.keepwatch;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * A Kubernetes API server for tests: keepwatch serve, as a process, with its data in memory. It also ends when this
 * process ends, however it ends.
 */
public final class Server implements AutoCloseable {
  private final Path folder;
  private final Process process;
  private final String text;

  private Server(Path folder, Process process) throws IOException, InterruptedException {
    this.folder = folder;
    this.process = process;
    while (!Files.exists(kubeconfig())) { // the server writes it when it is ready
      if (process.waitFor(10, TimeUnit.MILLISECONDS) && !Files.exists(kubeconfig())) {
        String log = Files.readString(folder.resolve("log")).strip();
        throw new KeepwatchException("keepwatch serve has ended: " + log, process.exitValue());
      }
    }
    text = Files.readString(kubeconfig());
  }

  /** Starts a server on a free port of 127.0.0.1, and waits until it is ready. Flags are those of keepwatch serve. */
  public static Server start(String... flags) {
    Path program = Program.find();
    Path folder = null;
    Process process = null;
    try {
      folder = Files.createTempDirectory("keepwatch-");
      List<String> command = new ArrayList<>(List.of(program.toString(), "serve", "--listen", "127.0.0.1:0"));
      command.addAll(List.of("--kubeconfig-out", folder.resolve("kubeconfig").toString(), "--end-with-parent"));
      command.addAll(List.of(flags));
      var log = folder.resolve("log").toFile();
      process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log).start();
      return new Server(folder, process);
    } catch (IOException e) {
      stop(process, folder);
      throw new KeepwatchException("keepwatch serve cannot be started", e);
    } catch (InterruptedException e) {
      stop(process, folder);
      Thread.currentThread().interrupt();
      throw new KeepwatchException("interrupted", e);
    } catch (KeepwatchException e) {
      stop(process, folder);
      throw e;
    }
  }

  /** Returns https://127.0.0.1:PORT. */
  public String url() {
    return field("server");
  }

  /** Returns the administrator's bearer token. */
  public String token() {
    return field("token");
  }

  /** Returns the path of the administrator's kubeconfig. */
  public Path kubeconfig() {
    return folder.resolve("kubeconfig");
  }

  /** Returns the server's certificate authority, as PEM. */
  public byte[] certificateAuthority() {
    return Base64.getDecoder().decode(field("certificate-authority-data"));
  }

  /** Ends the server, whose data are gone then. */
  @Override
  public void close() {
    stop(process, folder);
  }

  /** Returns a field of the kubeconfig that the server writes, which has one cluster and one user. */
  private String field(String name) {
    var found = Pattern.compile("^[ -]*" + name + ": (\\S+)$", Pattern.MULTILINE).matcher(text);
    if (!found.find()) {
      throw new IllegalStateException("the kubeconfig of keepwatch serve has no " + name);
    }
    String value = found.group(1);
    if (value.startsWith("\"")) { // what would be a number, for example
      return Line.unquoted(value);
    }
    return value.startsWith("'") ? value.substring(1, value.length() - 1).replace("''", "'") : value;
  }

  private static void stop(Process process, Path folder) {
    try {
      if (process != null) {
        process.destroy();
        if (!process.waitFor(30, TimeUnit.SECONDS)) {
          process.destroyForcibly().waitFor();
        }
      }
      if (folder != null) {
        Files.deleteIfExists(folder.resolve("kubeconfig"));
        Files.deleteIfExists(folder.resolve("log"));
        Files.deleteIfExists(folder);
      }
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    } catch (IOException e) {
      // a file stays in the folder of temporary files
    }
  }
}
