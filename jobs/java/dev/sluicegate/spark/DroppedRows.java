package dev.sluicegate.spark;

import java.io.Serializable;
import java.util.BitSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.rdd.PartitionPruningRDD;
import org.apache.spark.rdd.RDD;
import org.apache.spark.rdd.UnionRDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.UnionExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.streaming.operators.stateful.EventTimeWatermarkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.Function1;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Separates the outputs of rows that another output drops, so that they run only if a row was dropped.
 *
 * <p>The outputs of a job are the branches of one union. A branch of dropped rows has a filter by the
 * column {@link #MARK}. Spark's metrics tell afterwards whether another branch has dropped a row.
 */
public final class DroppedRows {
  /** The column by which such an output filters; sluicegate.spark.dropped_rows gives it that name. */
  private static final String MARK = "__kept_if_dropped";

  /** Operators that return a row for each row that they receive. */
  private static final Set<String> ROW_BY_ROW =
      Set.of(
          "ArrowEvalPythonExec",
          "BatchEvalPythonExec",
          "EventTimeWatermarkExec",
          "InputAdapter",
          "ProjectExec",
          "WholeStageCodegenExec");

  /** Operators of an aggregation: each row is in a group, and late groups are counted. */
  private static final Set<String> AGGREGATION =
      Set.of(
          "HashAggregateExec",
          "ObjectHashAggregateExec",
          "ShuffleExchangeExec",
          "SortAggregateExec",
          "SortExec",
          "StateStoreRestoreExec",
          "StateStoreSaveExec");

  private static final String ROWS = "numOutputRows";
  private static final String LATE = "numRowsDroppedByWatermark";

  private DroppedRows() {}

  /**
   * Returns the rows of an epoch in two: those of the other outputs, and those of the outputs of dropped
   * rows. Returns an empty list if the plan has not both, if it is not a plain union, or if an output
   * of dropped rows has to run in each epoch.
   *
   * @param batch the rows of foreachBatch
   * @param executed the plan that Spark made for the epoch
   */
  public static List<Dataset<Row>> split(Dataset<Row> batch, SparkPlan executed) {
    RDD<InternalRow> rows =
        ((org.apache.spark.sql.classic.Dataset<Row>) batch).queryExecution().toRdd();
    List<SparkPlan> branches = branches(executed);
    List<RDD<?>> inputs = inputs(rows);
    // Spark leaves out inputs that have no partition: then it is not known which input is which branch
    if (branches.isEmpty() || branches.size() != inputs.size()) {
      return List.of();
    }
    BitSet dropped = new BitSet();
    int partitions = 0;
    for (int i = 0; i < inputs.size(); i++) {
      int next = partitions + inputs.get(i).getNumPartitions();
      if (isOfDropped(branches.get(i))) {
        if (runsInEachEpoch(branches.get(i))) {
          return List.of();
        }
        dropped.set(partitions, next);
      }
      partitions = next;
    }
    if (dropped.isEmpty() || dropped.cardinality() == partitions) {
      return List.of();
    }
    return List.of(
        only(batch, rows, partition -> !dropped.get((Integer) partition)),
        only(batch, rows, partition -> dropped.get((Integer) partition)));
  }

  /**
   * Returns whether an output may have dropped a row in a plan that has run. It is false only if all
   * other outputs consist of operators that are known, and none of them received more rows than it kept.
   */
  public static boolean possible(SparkPlan executed) {
    List<SparkPlan> branches = branches(executed);
    return branches.isEmpty()
        || branches.stream().anyMatch(branch -> !isOfDropped(branch) && mayHaveDropped(branch));
  }

  private static boolean mayHaveDropped(SparkPlan node) {
    String name = name(node);
    if (name.equals("MicroBatchScanExec")) {
      return false;
    }
    if (name.equals("FilterExec")) {
      SparkPlan input = counted(children(node).get(0));
      return input == null || metric(node, ROWS) != metric(input, ROWS) || mayHaveDropped(input);
    }
    boolean late = name.equals("StateStoreSaveExec") && metric(node, LATE) != 0;
    // others are for example a join, a limit, an explode, or a function that returns fewer rows
    boolean known = ROW_BY_ROW.contains(name) || AGGREGATION.contains(name);
    return late || !known || mayHaveDropped(children(node).get(0));
  }

  /** Returns the next node that counts the rows it gives to a filter; null if another one is between. */
  private static SparkPlan counted(SparkPlan node) {
    String name = name(node);
    if (name.equals("FilterExec") || name.equals("MicroBatchScanExec")) {
      return node;
    }
    return ROW_BY_ROW.contains(name) ? counted(children(node).get(0)) : null;
  }

  private static String name(SparkPlan node) {
    return node.getClass().getSimpleName();
  }

  private static long metric(SparkPlan node, String name) {
    return CollectionConverters.asJava(node.metrics()).get(name).value();
  }

  /** Returns the inputs of the union of the outputs; none if there is no union, or not it alone. */
  private static List<SparkPlan> branches(SparkPlan executed) {
    SparkPlan node = executed;
    while (!(node instanceof UnionExec)) {
      if (children(node).size() != 1) {
        return List.of();
      }
      node = children(node).get(0);
    }
    return children(node);
  }

  /** Returns the inputs of the same union as they run, if each of its partitions is one of theirs. */
  private static List<RDD<?>> inputs(RDD<?> rows) {
    RDD<?> rdd = rows;
    while (!(rdd instanceof UnionRDD)) {
      List<Dependency<?>> on = CollectionConverters.asJava(rdd.dependencies());
      if (on.size() != 1 || !(on.get(0) instanceof OneToOneDependency)) {
        return List.of();
      }
      rdd = on.get(0).rdd();
    }
    return List.copyOf(CollectionConverters.asJava(((UnionRDD<?>) rdd).rdds()));
  }

  private static boolean isOfDropped(SparkPlan node) {
    return node instanceof FilterExec filter && filter.condition().toString().contains(MARK)
        || children(node).stream().anyMatch(DroppedRows::isOfDropped);
  }

  /**
   * Returns whether a plan must run in each epoch: its state must have each version, its watermark each
   * row, and the input of its shuffle runs with the other outputs anyway.
   */
  private static boolean runsInEachEpoch(SparkPlan node) {
    return node instanceof StateStoreWriter
        || node instanceof EventTimeWatermarkExec
        || node instanceof Exchange
        || children(node).stream().anyMatch(DroppedRows::runsInEachEpoch);
  }

  private static List<SparkPlan> children(SparkPlan node) {
    return CollectionConverters.asJava(node.children());
  }

  private interface Partitions extends Function1<Object, Object>, Serializable {}

  private static Dataset<Row> only(Dataset<Row> batch, RDD<InternalRow> rows, Partitions which) {
    SparkSession session = ((org.apache.spark.sql.classic.Dataset<Row>) batch).sparkSession();
    RDD<InternalRow> some = PartitionPruningRDD.create(rows, which);
    return session.internalCreateDataFrame(some, batch.schema(), false);
  }
}
