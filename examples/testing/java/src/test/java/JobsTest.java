import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.fabric8.kubernetes.api.model.batch.v1.JobBuilder;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

/** A Job that runs for an hour ends in the test at once: KEEPWATCH=bin/keepwatch mvn test -Dtest=JobsTest */
class JobsTest {
  @RegisterExtension static final Keepwatch server = new Keepwatch("--simulate");

  @Test
  void aJobEnds() {
    var template =
        new JobBuilder()
            .withNewMetadata().withNamespace("default").withName("backup").endMetadata()
            .withNewSpec().withNewTemplate()
            .withNewMetadata().addToAnnotations("simulation.keepwatch.io/run-for", "1h").endMetadata()
            .withNewSpec().withRestartPolicy("Never").addNewContainer().withName("backup").withImage("backup:1").endContainer().endSpec()
            .endTemplate().endSpec()
            .build();
    var job = server.client().resource(template);
    job.create();
    var running = job.waitUntilCondition(j -> Integer.valueOf(1).equals(j.getStatus().getReady()), 1, TimeUnit.MINUTES).getStatus();
    assertNull(running.getCompletionTime());
    server.advance(Duration.ofHours(1));
    var ended = job.waitUntilCondition(j -> j.getStatus().getCompletionTime() != null, 1, TimeUnit.MINUTES).getStatus();
    assertEquals(1, ended.getSucceeded());
  }
}
