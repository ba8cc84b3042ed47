package io.github.keepwatch;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/** Finds the program keepwatch. */
public final class Program {
  /** The version of this library. */
  public static final String VERSION = "0.1.0";

  private static final Pattern RELEASE = Pattern.compile("keepwatch v(\\d+\\.\\d+\\.\\d+) .*", Pattern.DOTALL);
  private static final Set<Path> checked = ConcurrentHashMap.newKeySet();

  private Program() {}

  /**
   * Returns the path of the program, which the environment variable KEEPWATCH names, or else keepwatch on the PATH.
   *
   * @throws KeepwatchException if it is missing, or the release of another minor version than this library
   */
  public static Path find() {
    String named = System.getenv("KEEPWATCH");
    return find(named == null || named.isEmpty() ? "keepwatch" : named, System.getenv().getOrDefault("PATH", ""));
  }

  static Path find(String program, String path) {
    for (String folder : program.contains("/") ? new String[] {""} : path.split(":")) {
      Path found = Path.of(folder, program).toAbsolutePath(); // what has no slash would be looked up in PATH again
      if (Files.isRegularFile(found) && Files.isExecutable(found)) {
        check(found);
        return found;
      }
    }
    throw new KeepwatchException(
        String.format(
            "%s is no program: install keepwatch v%s, and put it on the PATH or set KEEPWATCH to its path;"
                + " see https://github.com/keepwatch/keepwatch#install",
            program, minor(VERSION)),
        -1);
  }

  private static void check(Path program) {
    if (checked.contains(program)) {
      return;
    }
    String printed = versionOf(program);
    if (!printed.startsWith("keepwatch ")) {
      throw new KeepwatchException(
          String.format("%s is not keepwatch: %1$s version printed \"%s\"", program, printed.strip()), -1);
    }
    var release = RELEASE.matcher(printed); // not of a build from a commit
    if (release.matches() && !minor(release.group(1)).equals(minor(VERSION))) {
      throw new KeepwatchException(
          String.format(
              "%s is keepwatch v%s, but this library is made for v%s: install keepwatch v%3$s,"
                  + " or version %4$s of the library",
              program, release.group(1), minor(VERSION), minor(release.group(1))),
          -1);
    }
    checked.add(program);
  }

  private static String versionOf(Path program) {
    try {
      var command = new ProcessBuilder(program.toString(), "version");
      var process = command.redirectError(ProcessBuilder.Redirect.DISCARD).start();
      process.getOutputStream().close();
      String printed = new String(process.getInputStream().readNBytes(4096), StandardCharsets.UTF_8);
      process.waitFor(1, TimeUnit.MINUTES);
      return printed;
    } catch (IOException e) {
      throw new KeepwatchException(program + " cannot be started", e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new KeepwatchException("interrupted", e);
    }
  }

  private static String minor(String version) {
    return version.substring(0, version.lastIndexOf('.'));
  }
}
