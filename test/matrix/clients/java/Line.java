import java.util.Map;
import java.util.stream.Collectors;

/** Prints events as lines of JSON, for a test that reads them. */
final class Line {
  private Line() {}

  static void event(String type, String name, String uid, String revision) {
    print(String.format("{\"type\":\"%s\",\"name\":\"%s\",\"uid\":\"%s\",\"revision\":\"%s\"}", type, name, uid, revision));
  }

  /** Prints that these are all objects, "UID/revision" by name, whatever the events before led to. */
  static void listed(Map<String, String> objects) {
    print("{\"type\":\"LISTED\",\"objects\":{" + objects.entrySet().stream()
        .map(o -> String.format("\"%s\":\"%s\"", o.getKey(), o.getValue()))
        .collect(Collectors.joining(",")) + "}}");
  }

  static void synced() {
    print("{\"type\":\"SYNCED\"}");
  }

  static void error(Object cause) {
    String text = String.valueOf(cause).replaceAll("[\\p{Cntrl}\"\\\\]", " ");
    print("{\"type\":\"ERROR\",\"message\":\"" + text + "\"}");
  }

  private static synchronized void print(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
