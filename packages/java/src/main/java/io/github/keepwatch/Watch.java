package io.github.keepwatch;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.concurrent.TimeUnit;

/**
 * An iterator of the changes of Kubernetes objects: keepwatch watch, as a process. Types and flags are those of the
 * command line:
 *
 * <pre>{@code
 * try (var watch = Watch.of(Path.of("web.state"), "pods,deployments.apps", "-A", "-l", "app=web")) {
 *   for (Event event : watch) {
 * }</pre>
 *
 * <p>With a state, a folder, the watch resumes where the last one ended. An event counts as handled when the next one
 * is requested, or by {@link #acknowledge}. Whatever is killed in between, this process or keepwatch, an event that was
 * not handled comes again, with the same id; so do handled ones of the same batch. What was deleted meanwhile comes as
 * DELETED.
 *
 * <p>One thread uses a watch; another one may close it, which ends the iteration.
 */
public final class Watch implements Iterable<Event>, Iterator<Event>, AutoCloseable {
  private static final System.Logger log = System.getLogger("keepwatch");

  /**
   * How many milliseconds the messages are waited for after the end of the program: one that was killed may leave a
   * credential plugin, which has stderr, too, as long as it runs.
   */
  private static final long MESSAGES = 5_000;

  private final Process process;
  private final Thread messages;
  private volatile boolean closed;
  private volatile String lastMessage = "";
  private final byte[] buffer = new byte[1 << 16]; // has what was read from stdout, from read to filled
  private int read;
  private int filled;
  private int unacknowledged;
  private Event next;
  private boolean ended;

  private Watch(List<String> command) {
    try {
      process = new ProcessBuilder(command).start();
    } catch (IOException e) {
      throw new KeepwatchException(command.get(0) + " cannot be started", e);
    }
    messages = new Thread(this::readMessages, "keepwatch watch");
    messages.setDaemon(true);
    messages.start();
  }

  /** Watches types from the current state on. */
  public static Watch of(String types, String... flags) {
    return of(null, types, flags);
  }

  /** Watches types from where the last watch with this state ended. */
  public static Watch of(Path state, String types, String... flags) {
    List<String> command = new ArrayList<>(List.of(Program.find().toString(), "watch", types));
    command.addAll(List.of(flags));
    command.add("--acknowledge");
    if (state != null) {
      command.addAll(List.of("--state", state.toString()));
    }
    return new Watch(command);
  }

  /** Returns this watch: it can be iterated once. */
  @Override
  public Iterator<Event> iterator() {
    return this;
  }

  /**
   * Acknowledges the last event, and waits for the next one.
   *
   * @throws KeepwatchException if the program ends with an error
   */
  @Override
  public boolean hasNext() {
    while (next == null && !ended) {
      acknowledge();
      String line = readLine();
      if (line == null) {
        ended = true;
        if (!closed) {
          end();
        }
        return false;
      }
      unacknowledged++;
      next = Line.parse(line);
    }
    return next != null;
  }

  @Override
  public Event next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    Event event = next;
    next = null;
    return event;
  }

  /** Marks the last event as handled, before the next one is requested: for a consumer that ends after it. */
  public void acknowledge() {
    if (next != null || unacknowledged == 0) {
      return; // the event that hasNext has read is not handled
    }
    try {
      process.getOutputStream().write("\n".repeat(unacknowledged).getBytes(StandardCharsets.US_ASCII));
      process.getOutputStream().flush();
    } catch (IOException e) {
      // the program has ended: reading shows why
    }
    unacknowledged = 0;
  }

  /** Ends the program. An event that was not acknowledged comes again in the next watch with this state. */
  @Override
  public void close() {
    closed = true;
    try {
      process.getOutputStream().close();
    } catch (IOException e) {
      // it has ended
    }
    try {
      if (!process.waitFor(30, TimeUnit.SECONDS)) {
        process.destroyForcibly().waitFor();
      }
      messages.join(MESSAGES);
    } catch (InterruptedException e) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    }
  }

  /** Waits for the end of the program, which has closed stdout. */
  private void end() {
    int code;
    try {
      code = process.waitFor();
      messages.join(MESSAGES);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new KeepwatchException("interrupted", e);
    }
    if (code != 0) {
      String otherwise = "keepwatch watch has ended with exit code " + code;
      throw new KeepwatchException(code > 128 || lastMessage.isEmpty() ? otherwise : lastMessage, code);
    }
  }

  /** Returns the next line, or null at the end. A last line that is cut off is dropped; its event comes again. */
  private String readLine() {
    var line = new ByteArrayOutputStream();
    try {
      while (true) {
        for (int i = read; i < filled; i++) {
          if (buffer[i] == '\n') {
            line.write(buffer, read, i - read);
            read = i + 1;
            return line.toString(StandardCharsets.UTF_8);
          }
        }
        line.write(buffer, read, filled - read);
        read = 0;
        filled = Math.max(0, process.getInputStream().read(buffer));
        if (filled == 0) {
          return null;
        }
      }
    } catch (IOException e) {
      filled = 0; // the stream was closed
      return null;
    }
  }

  private void readMessages() {
    try (var in = new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        if (!line.startsWith("See 'keepwatch ")) { // which follows a wrong flag
          lastMessage = line.replaceFirst("^keepwatch: ", "");
        }
        log.log(System.Logger.Level.DEBUG, line);
      }
    } catch (IOException e) {
      // the stream was closed
    }
  }
}
