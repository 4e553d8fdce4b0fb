package dev.sluicegate.spark;

import java.lang.reflect.Field;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor;
import org.apache.spark.util.Clock;
import org.apache.spark.util.SystemClock;

/**
 * The clock by which a query waits for its next trigger, which a job that is behind does not wait for.
 *
 * <p>Spark's trigger reads the clock after each epoch, so one that is replaced during an epoch counts
 * from its end on. StreamingQueryManager.startQuery takes a clock too, but then its other eleven
 * arguments are ours to know.
 */
public final class CatchUpClock implements Clock {
  private final Clock clock = new SystemClock();
  private volatile boolean behind;

  /**
   * Returns the new clock of a query. With another trigger than that of an interval, as one that reads
   * what is available, nothing waits for it.
   */
  public static CatchUpClock of(MicroBatchExecution query) {
    CatchUpClock made = new CatchUpClock();
    if (query.triggerExecutor() instanceof ProcessingTimeExecutor trigger) {
      try {
        Field field = ProcessingTimeExecutor.class.getDeclaredField("clock");
        field.setAccessible(true);
        field.set(trigger, made);
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException("Spark's trigger has no clock that can be replaced", e);
      }
    }
    return made;
  }

  /** Makes the next wait end at once. */
  public void skipNextWait() {
    behind = true;
  }

  @Override
  public long waitTillTime(long targetMs) {
    if (!behind) {
      return clock.waitTillTime(targetMs);
    }
    behind = false;
    return clock.getTimeMillis();
  }

  @Override
  public long getTimeMillis() {
    return clock.getTimeMillis();
  }

  @Override
  public long nanoTime() {
    return clock.nanoTime();
  }
}
