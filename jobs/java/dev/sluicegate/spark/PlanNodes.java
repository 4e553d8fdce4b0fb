package dev.sluicegate.spark;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.Predicate;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Finds nodes of an epoch's physical plan.
 *
 * <p>Python would ask for the children of each node, and for its class. That is most of the calls into
 * the JVM that an epoch needs.
 */
public final class PlanNodes {
  private PlanNodes() {}

  /** Returns the nodes that move a watermark. */
  public static SparkPlan[] watermarks(SparkPlan root) {
    return find(root, EventTimeWatermarkExec.class::isInstance);
  }

  /** Returns the nodes that write state. */
  public static SparkPlan[] stateful(SparkPlan root) {
    return find(root, node -> node instanceof StateStoreWriter writer && writer.stateInfo().isDefined());
  }

  /** Visits a node before its children, and these from last to first: records have event times so. */
  private static SparkPlan[] find(SparkPlan root, Predicate<SparkPlan> wanted) {
    List<SparkPlan> found = new ArrayList<>();
    Deque<SparkPlan> pending = new ArrayDeque<>(List.of(root));
    while (!pending.isEmpty()) {
      SparkPlan node = pending.pop();
      if (wanted.test(node)) {
        found.add(node);
      }
      CollectionConverters.asJava(node.children()).forEach(pending::push);
    }
    return found.toArray(new SparkPlan[0]);
  }
}
