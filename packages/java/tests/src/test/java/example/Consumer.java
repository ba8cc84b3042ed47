package example;

import io.github.keepwatch.Event;
import io.github.keepwatch.Watch;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** A consumer that a test kills: Consumer STATE HANDLED. It writes a line for each handled change. */
final class Consumer {
  public static void main(String[] args) throws Exception {
    String[] flags = {"-l", "app=killed", "--chunk-size=7", "--kubeconfig", args[2]};
    try (var watch = Watch.of(Path.of(args[0]), "configmaps", flags)) {
      for (Event event : watch) {
        if (event instanceof Event.Change change) {
          Thread.sleep(20);
          String name = ConfigMaps.decoded(change).getMetadata().getName();
          String line = change.type() + " " + name + " " + change.id() + "\n";
          Files.writeString(Path.of(args[1]), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        }
      }
    }
  }
}
