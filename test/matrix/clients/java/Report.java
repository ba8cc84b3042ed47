import io.fabric8.kubernetes.api.model.HasMetadata;
import io.fabric8.kubernetes.api.model.ObjectMeta;
import java.util.List;
import java.util.stream.Collectors;

/** Prints fabric8's objects. */
final class Report {
  private Report() {}

  static void event(String type, HasMetadata object) {
    ObjectMeta m = object.getMetadata();
    Line.event(type, m.getName(), m.getUid(), m.getResourceVersion());
  }

  static void listed(List<? extends HasMetadata> objects) {
    Line.listed(objects.stream().map(HasMetadata::getMetadata)
        .collect(Collectors.toMap(ObjectMeta::getName, m -> m.getUid() + "/" + m.getResourceVersion())));
  }
}
