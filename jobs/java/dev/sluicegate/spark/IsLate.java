package dev.sluicegate.spark;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Returns whether a row is late: whether its window ended at or before the epoch's watermark.
 *
 * <p>The plan of a query is made once, and its watermark moves with each epoch. So a task finds it in a
 * local property, which the driver sets before it runs the plan. A row without a window's end is kept,
 * and so is every row if the property is missing.
 */
public final class IsLate implements UDF1<Long, Boolean> {
  private static final long serialVersionUID = 1L;

  /** Milliseconds since 1970, or an empty string in an epoch that drops no late rows. */
  public static final String PROPERTY = "sluicegate.late.watermark";

  @Override
  public Boolean call(Long windowEndUs) {
    TaskContext task = TaskContext.get();
    String watermarkMs = task == null ? null : task.getLocalProperty(PROPERTY);
    if (watermarkMs == null || windowEndUs == null) {
      return true;
    }
    return !watermarkMs.isEmpty() && windowEndUs <= 1000 * Long.parseLong(watermarkMs);
  }
}
