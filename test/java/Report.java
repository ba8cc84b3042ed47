import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import java.util.List;
import java.util.stream.Collectors;

/** Prints events as lines of JSON, for a test that reads them. */
final class Report {
  private Report() {}

  static void event(String type, HasMetadata object) {
    ObjectMeta m = object.getMetadata();
    print(String.format("{\"type\":\"%s\",\"name\":\"%s\",\"uid\":\"%s\",\"revision\":\"%s\"}",
        type, m.getName(), m.getUid(), m.getResourceVersion()));
  }

  /** Prints that these are all objects, whatever the events before led to. */
  static void listed(List<? extends HasMetadata> objects) {
    String states = objects.stream().map(HasMetadata::getMetadata)
        .map(m -> String.format("\"%s\":\"%s/%s\"", m.getName(), m.getUid(), m.getResourceVersion()))
        .collect(Collectors.joining(","));
    print("{\"type\":\"LISTED\",\"objects\":{" + states + "}}");
  }

  private static synchronized void print(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
