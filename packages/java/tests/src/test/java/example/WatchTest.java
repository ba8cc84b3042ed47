package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.keepwatch.Event;
import io.github.keepwatch.KeepwatchException;
import io.github.keepwatch.Watch;
import io.github.keepwatch.junit.KeepwatchExtension;
import io.github.keepwatch.junit.Kubeconfig;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

/** Tests of the watch against a real server: what a consumer receives, whatever is killed. */
@ExtendWith(KeepwatchExtension.class)
class WatchTest {
  @TempDir Path folder;
  private Path kubeconfig, state;
  private ConfigMaps configMaps;

  @BeforeEach
  void connect(@Kubeconfig Path kubeconfig) throws Exception {
    this.kubeconfig = kubeconfig;
    state = folder.resolve("state");
    configMaps = new ConfigMaps(kubeconfig);
  }

  private Watch watch(Path state, String types, String... flags) {
    List<String> all = new ArrayList<>();
    all.addAll(List.of("--kubeconfig", kubeconfig.toString(), "--cache-dir", folder + "/cache"));
    all.addAll(List.of(flags));
    return Watch.of(state, types, all.toArray(String[]::new));
  }

  private static String name(Event event) {
    if (event instanceof Event.Change change) {
      return change.type() + " " + ConfigMaps.decoded(change).getMetadata().getName();
    }
    return event.getClass().getSimpleName();
  }

  private static List<String> all(Watch watch) {
    try (watch) {
      List<String> names = new ArrayList<>();
      watch.forEach(event -> names.add(name(event)));
      return names;
    }
  }

  @Test
  void events() throws Exception {
    configMaps.create("events", "events-a", Map.of("text", "1"));
    try (var watch = watch(null, "configmaps", "-l", "app=events")) {
      var added = (Event.Change) watch.next();
      assertEquals("ADDED events-a", name(added));
      assertEquals("configmaps", added.resource());
      assertEquals(ConfigMaps.decoded(added).getMetadata().getUid() + "/" + added.revision(), added.id());
      assertEquals(1, ((Event.Synced) watch.next()).count());
      configMaps.delete("events-a");
      assertEquals("DELETED events-a", name(watch.next()));
    }
  }

  @Test
  void severalTypes() {
    try (var watch = watch(null, "configmaps,pods", "-l", "app=none", "--until-synced")) {
      var synced = (Event.Synced) watch.next();
      assertEquals(List.of("configmaps", "pods"), synced.resources());
      assertFalse(watch.hasNext());
    }
  }

  @Test
  void whatWasNotAcknowledgedComesAgain() throws Exception {
    configMaps.create("again", "again-a", Map.of());
    String id = null;
    for (int i = 0; i < 3; i++) {
      try (var watch = watch(state, "configmaps", "-l", "app=again")) {
        var change = (Event.Change) watch.next();
        assertTrue(id == null || id.equals(change.id()), change.id());
        id = change.id();
      }
    }
    try (var watch = watch(state, "configmaps", "-l", "app=again")) {
      assertEquals("ADDED again-a", name(watch.next()));
      assertEquals("Synced", name(watch.next()));
      watch.acknowledge();
    }
    configMaps.delete("again-a");
    String[] rest = {"-l", "app=again", "--until-synced"};
    assertEquals(List.of("DELETED again-a", "Synced"), all(watch(state, "configmaps", rest)));
    assertEquals(List.of("Synced"), all(watch(state, "configmaps", rest)));
  }

  @Test
  void errors() {
    var unknown = assertThrows(KeepwatchException.class, () -> all(watch(null, "nonsense")));
    assertEquals(1, unknown.code());
    assertTrue(unknown.getMessage().contains("doesn't have a resource type \"nonsense\""), unknown.getMessage());
    var usage = assertThrows(KeepwatchException.class, () -> all(watch(null, "pods", "--nonsense")));
    assertEquals(2, usage.code());
    assertEquals("unknown flag: --nonsense", usage.getMessage());
    try (var first = watch(state, "configmaps", "-l", "app=errors")) {
      first.next();
      var second = assertThrows(KeepwatchException.class, () -> all(watch(state, "configmaps", "-l", "app=errors")));
      assertTrue(second.getMessage().contains("is in use by another keepwatch"), second.getMessage());
    }
  }

  @Test
  void textsAndALineOfMoreThanAMebibyte() throws Exception {
    String text = "line\nline\r\n\u2028\u2029\u0085 \"'\\ 猫 🐈", large = "é".repeat(500_000);
    configMaps.create("texts", "texts", Map.of("text", text, "large", large));
    try (var watch = watch(null, "configmaps", "-l", "app=texts")) {
      assertEquals(Map.of("text", text, "large", large), ConfigMaps.decoded((Event.Change) watch.next()).getData());
    }
  }

  @Test
  void closingEndsAProgramThatIsWriting() throws Exception {
    for (int i = 0; i < 40; i++) {
      configMaps.create("close", "close-" + i, Map.of("large", "x".repeat(100_000)));
    }
    try (var watch = watch(state, "configmaps", "-l", "app=close")) {
      watch.next();
    }
    assertEquals(41, all(watch(state, "configmaps", "-l", "app=close", "--until-synced")).size());
  }

  @Test
  void closingInAnotherThreadEndsTheIteration() throws Exception {
    var watch = watch(null, "configmaps", "-l", "app=none");
    watch.next();
    var closing = new Thread(watch::close);
    closing.start();
    assertFalse(watch.hasNext());
    closing.join();
  }

  @Test
  void aConsumerThatIsKilledAgainAndAgainLosesNothing() throws Throwable {
    String given = System.getenv("SEED");
    long seed = given == null ? new Random().nextInt() : Long.parseLong(given);
    System.out.println("SEED = " + seed);
    var draw = new Random(seed);
    Path handled = folder.resolve("handled");
    all(watch(state, "configmaps", "-l", "app=killed", "--until-synced")); // from here on every event counts
    List<String> want = new ArrayList<>(), alive = new ArrayList<>();
    Process[] consumer = {consumer(handled)};
    try {
      for (int step = 0; step < 200; step++) {
        if (draw.nextDouble() < 0.6 || alive.isEmpty()) {
          alive.add("killed-" + step);
          configMaps.create("killed", "killed-" + step, Map.of("large", "x".repeat(draw.nextInt(3) * 50_000)));
          want.add("ADDED killed-" + step);
        } else {
          String gone = alive.remove(draw.nextInt(alive.size()));
          configMaps.delete(gone);
          want.add("DELETED " + gone);
        }
        if (draw.nextDouble() < 0.05) {
          int before = eventsOf(handled).size();
          for (int i = 0; i < 5; i++) { // it is killed while it handles these
            alive.add("killed-" + step + "-" + i);
            configMaps.create("killed", "killed-" + step + "-" + i, Map.of());
            want.add("ADDED killed-" + step + "-" + i);
          }
          Java.eventually(
              () -> {
                restart(consumer, handled);
                assertTrue(eventsOf(handled).size() > before, "the consumer handles nothing");
              });
          Thread.sleep(draw.nextInt(120)); // a random moment, on purpose
          consumer[0].destroyForcibly().waitFor();
        }
        restart(consumer, handled);
      }
      Java.eventually(
          () -> {
            restart(consumer, handled);
            assertEquals(want, eventsOf(handled));
          });
    } finally {
      consumer[0].destroyForcibly().waitFor();
    }
  }

  /** Starts a consumer again that was killed, or that found the state in use by the program of the one before. */
  private void restart(Process[] consumer, Path handled) throws Exception {
    if (!consumer[0].isAlive()) {
      consumer[0] = consumer(handled);
    }
  }

  private Process consumer(Path handled) throws Exception {
    return Java.start(Consumer.class, state.toString(), handled.toString(), kubeconfig.toString());
  }

  /** Returns the handled events, without repetitions and without a line that was cut off. */
  private static List<String> eventsOf(Path handled) throws Exception {
    Map<String, String> byId = new LinkedHashMap<>();
    for (String line : Files.exists(handled) ? Files.readAllLines(handled) : List.<String>of()) {
      String[] fields = line.split(" ");
      if (fields.length == 3 && fields[2].contains("/")) {
        byId.putIfAbsent(fields[2], fields[0] + " " + fields[1]);
      }
    }
    return List.copyOf(byId.values());
  }
}
