package io.github.keepwatch;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads the members of a line of keepwatch watch: texts, numbers, lists of texts, and at the end the object, which it
 * leaves as it is. The JDK reads no JSON, and the clients for Kubernetes bring different libraries for it.
 */
final class Line {
  private final String text;
  private int at;

  private Line(String text) {
    this.text = text;
  }

  /** Returns the event of a line, or null for a type that a later version has added. */
  static Event parse(String line) {
    Map<String, Object> members = new Line(line).members();
    String type = (String) members.get("type");
    switch (type) {
      case "ADDED", "MODIFIED", "DELETED":
        return new Event.Change(
            Event.Type.valueOf(type),
            text(members, "revision"),
            text(members, "id"),
            text(members, "resource"),
            text(members, "object"));
      case "SYNCED":
        return new Event.Synced(text(members, "revision"), Long.parseLong(text(members, "count")), texts(members));
      case "GAP":
        return new Event.Gap(
            text(members, "from"), text(members, "to"), text(members, "reason"), text(members, "resource"));
      case "BOOKMARK":
        return new Event.Bookmark(text(members, "revision"), texts(members));
      default:
        return null;
    }
  }

  /** Returns the text that a JSON string stands for. */
  static String unquoted(String json) {
    return new Line(json).string();
  }

  private static String text(Map<String, Object> members, String name) {
    return (String) members.getOrDefault(name, "");
  }

  @SuppressWarnings("unchecked") // members makes lists of texts only
  private static List<String> texts(Map<String, Object> members) {
    return (List<String>) members.getOrDefault("resources", List.of());
  }

  private Map<String, Object> members() {
    Map<String, Object> members = new HashMap<>();
    expect('{');
    while (true) {
      String name = string();
      expect(':');
      if (name.equals("object")) { // the last member
        members.put(name, text.substring(at, text.length() - 1));
        return members;
      }
      members.put(name, value());
      if (text.charAt(at) == '}') {
        return members;
      }
      expect(',');
    }
  }

  private Object value() {
    if (text.charAt(at) == '"') {
      return string();
    }
    if (text.charAt(at) == '[') {
      List<String> texts = new ArrayList<>();
      while (text.charAt(at) != ']') {
        at++;
        if (text.charAt(at) == '"') {
          texts.add(string());
        }
      }
      at++;
      return List.copyOf(texts);
    }
    int begin = at;
    while (",}".indexOf(text.charAt(at)) < 0) {
      at++;
    }
    return text.substring(begin, at);
  }

  private String string() {
    expect('"');
    var value = new StringBuilder();
    while (text.charAt(at) != '"') {
      char c = text.charAt(at++);
      value.append(c == '\\' ? escaped() : c);
    }
    at++;
    return value.toString();
  }

  private char escaped() {
    char c = text.charAt(at++);
    int plain = "bfnrt".indexOf(c);
    if (plain >= 0) {
      return "\b\f\n\r\t".charAt(plain);
    }
    if (c != 'u') {
      return c;
    }
    at += 4;
    return (char) Integer.parseInt(text, at - 4, at, 16);
  }

  private void expect(char c) {
    if (text.charAt(at++) != c) {
      String begin = text.substring(0, Math.min(text.length(), 200));
      throw new IllegalArgumentException("no line of keepwatch watch: " + begin);
    }
  }
}
