package example;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.function.Executable;

/** Processes of Java, and waits for them. */
final class Java {
  /** Starts the main method of a class, in a process with this one's class path. */
  static Process start(Class<?> main, String... args) throws IOException {
    return command(main, args).start();
  }

  /** Returns the command of a process for the main method of a class. */
  static ProcessBuilder command(Class<?> main, String... args) {
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    var command = new ArrayList<>(List.of(java, "-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(args));
    return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD);
  }

  /** Waits until an assertion holds, for five minutes at most. */
  static void eventually(Executable assertion) throws Throwable {
    long end = System.nanoTime() + Duration.ofMinutes(5).toNanos();
    while (true) {
      try {
        assertion.execute();
        return;
      } catch (AssertionError e) {
        if (System.nanoTime() > end) {
          throw e;
        }
        Thread.sleep(10);
      }
    }
  }
}
