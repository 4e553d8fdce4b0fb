package dev.sluicegate.spark;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.api.java.UDF1;

/**
 * Returns whether a row may be late: whether its window ended at or before the epoch's watermark.
 *
 * <p>The plan of a query is made once, and its watermark moves with each epoch. So a task finds it in a
 * local property, which the driver sets before it runs the plan. Without the property every row may be
 * late.
 */
public final class IsLate implements UDF1<Long, Boolean> {
  private static final long serialVersionUID = 1L;

  /** Milliseconds since 1970, or an empty string in an epoch that drops no late rows. */
  public static final String PROPERTY = "sluicegate.late.watermark";

  @Override
  public Boolean call(Long windowEndMs) {
    TaskContext task = TaskContext.get();
    String watermarkMs = task == null ? null : task.getLocalProperty(PROPERTY);
    if (watermarkMs == null || windowEndMs == null) {
      return true;
    }
    return !watermarkMs.isEmpty() && windowEndMs <= Long.parseLong(watermarkMs);
  }
}
