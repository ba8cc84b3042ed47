package io.github.keepwatch;

import java.util.List;
import java.util.function.Function;

/** A line of keepwatch watch. */
public sealed interface Event {
  /** The kinds of changes. */
  enum Type {
    ADDED,
    MODIFIED,
    DELETED
  }

  /**
   * An object was added, modified or deleted.
   *
   * @param id the same in every repetition of the event
   * @param json the object, for the JSON library of your client; of a deletion within a gap: apiVersion, kind and
   *     metadata only
   */
  record Change(Type type, String revision, String id, String resource, String json) implements Event {
    /** Returns the object by your client, such as {@code change.object(s -> gson.fromJson(s, V1Pod.class))}. */
    public <T> T object(Function<String, T> decode) {
      return decode.apply(json);
    }
  }

  /**
   * The events so far add up to the state at this revision, of count objects.
   *
   * @param resources the types that are complete
   */
  record Synced(String revision, long count, List<String> resources) implements Event {}

  /**
   * The history between two revisions is lost; the events up to the next Synced are the difference.
   *
   * @param reason expired, downtime or rewind
   * @param resource the type whose history is lost
   */
  record Gap(String from, String to, String reason, String resource) implements Event {}

  /** Everything up to this revision was delivered. Only with the flag --bookmarks. */
  record Bookmark(String revision, List<String> resources) implements Event {}
}
