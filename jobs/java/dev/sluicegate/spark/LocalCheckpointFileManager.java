package dev.sluicegate.spark;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;

/**
 * Writes Spark's checkpoint files to a local disk, without starting processes.
 *
 * <p>Hadoop starts ten processes for each file: chmod for the file and for its checksums, and readlink
 * for source and target of their renames; and chmod for each folder. Here a file that replaces
 * another is moved, and one that Spark creates once (offsets/N, commits/N) becomes a hard link of its
 * temporary file: of two drivers one gets FileAlreadyExistsException, where Hadoop first looks and
 * then renames. Files have no checksums of Hadoop. Spark makes one manager for each log and state
 * store, by the setting spark.sql.streaming.checkpointFileManagerClass.
 *
 * <p>A file of a source's own log is on the disk before it has its name: Spark does not start with one
 * that a power cut has left empty. Of all other files an epoch syncs those that it needs before it is
 * decided, and a start removes empty ones.
 */
public final class LocalCheckpointFileManager extends FileContextBasedCheckpointFileManager {
  private final boolean ofSource;

  public LocalCheckpointFileManager(Path path, Configuration conf) {
    super(path, conf);
    ofSource = path.getParent() != null && path.getParent().getName().equals("sources");
    if (!isLocal()) {
      throw new UnsupportedOperationException(
          "the checkpoint " + path + " is not on a local disk;"
              + " unset spark.sql.streaming.checkpointFileManagerClass for it");
    }
  }

  @Override
  public void mkdirs(Path path) {
    try {
      Files.createDirectories(local(path));
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public FSDataOutputStream createTempFile(Path path) {
    try {
      return new FSDataOutputStream(new BufferedOutputStream(Files.newOutputStream(local(path))), null);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  @Override
  public void renameTempFile(Path source, Path target, boolean overwriteIfPossible) {
    try {
      if (ofSource) {
        sync(local(source));
      }
      rename(local(source), local(target), overwriteIfPossible);
    } catch (IOException e) {
      throw unchecked(e);
    }
  }

  private static void sync(java.nio.file.Path file) throws IOException {
    try (FileChannel channel = FileChannel.open(file, StandardOpenOption.WRITE)) {
      channel.force(true);
    }
  }

  private static void rename(java.nio.file.Path from, java.nio.file.Path to, boolean overwrite)
      throws IOException {
    // an earlier version wrote some: with the checksums of its predecessor a file cannot be read
    Files.deleteIfExists(to.resolveSibling("." + to.getFileName() + ".crc"));
    if (overwrite) {
      Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
    } else {
      link(from, to);
    }
  }

  private static void link(java.nio.file.Path from, java.nio.file.Path to) throws IOException {
    try {
      Files.createLink(to, from);
    } catch (java.nio.file.FileAlreadyExistsException e) {
      FileAlreadyExistsException taken =
          new FileAlreadyExistsException("another driver created the checkpoint file " + to);
      taken.initCause(e);
      throw taken;
    }
    Files.delete(from);
  }

  private static java.nio.file.Path local(Path path) {
    return java.nio.file.Path.of(path.toUri().getPath());
  }

  /** Throws an exception that the method, which Scala declares, does not list; Spark catches it by its type. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException unchecked(IOException e) throws E {
    throw (E) e;
  }
}
