package dev.sluicegate.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.s3a.Constants;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Writes Spark's checkpoint files to S3, each in one request and without a rename.
 *
 * <p>A file that Spark creates once (offsets/N, commits/N) is written with If-None-Match: *, so of
 * two drivers one gets FileAlreadyExistsException and ends. A failed write is an error of close(), which
 * Spark's manager for object stores (AbortableStreamBasedCheckpointFileManager) hides. Other file
 * systems than S3A are refused. Spark makes one for each log and state store, by the setting
 * spark.sql.streaming.checkpointFileManagerClass.
 */
public final class FencedCheckpointFileManager extends FileSystemBasedCheckpointFileManager {
  /** Metadata of an object: which try wrote it. Settles a 412 that answers our own lost reply. */
  private static final String WRITER = "sluicegate-writer";

  /** The folders of Spark's logs, which have files and no folders in them. */
  private static final Set<String> LOGS = Set.of("offsets", "commits");

  private final Path root;

  public FencedCheckpointFileManager(Path path, Configuration conf) {
    super(path, conf);
    root = path;
    try {
      if (!fs().hasPathCapability(path, CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE)) {
        throw new UnsupportedOperationException(
            "the checkpoint " + path + " is on a file system without conditional creation (S3A has it);"
                + " unset spark.sql.streaming.checkpointFileManagerClass for it");
      }
    } catch (IOException e) {
      throw new UncheckedIOException("the checkpoint " + path + " cannot be opened", e);
    }
  }

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    String writer = UUID.randomUUID().toString();
    try {
      // overwrite(true) only saves a look before the upload; the condition is checked by the store
      FSDataOutputStreamBuilder<?, ?> builder = fs().createFile(path).recursive().overwrite(true);
      if (!overwriteIfPossible) {
        builder.must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true);
        builder.must(Constants.FS_S3A_CREATE_HEADER + "." + WRITER, writer);
      }
      return new Upload(builder.build(), path, overwriteIfPossible ? null : writer);
    } catch (IOException e) {
      throw new UncheckedIOException("the checkpoint file " + path + " cannot be written", e);
    }
  }

  /** Does nothing: a folder on S3 would be an object more, which nobody needs and clearing would miss. */
  @Override
  public void mkdirs(Path path) {
    // a file's folders are there when the file is
  }

  @Override
  public Path createCheckpointDirectory() {
    return fs().makeQualified(root);
  }

  /**
   * Returns whether a file, or a folder with files, exists. Before Spark creates offsets/N or commits/N
   * it asks whether that exists: one request, where S3A would also look for a folder of that name.
   */
  @Override
  @SuppressWarnings("deprecation") // isFile: S3A has no other way to look for an object alone
  public boolean exists(Path path) {
    try {
      return isLogEntry(path) ? fs().isFile(path) : fs().exists(path);
    } catch (IOException e) {
      throw new UncheckedIOException("the checkpoint file " + path + " cannot be looked up", e);
    }
  }

  private static boolean isLogEntry(Path path) {
    Path folder = path.getParent();
    return folder != null && LOGS.contains(folder.getName());
  }

  /** Lists a folder; one that no file is in yet is empty, not missing. */
  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    try {
      return fs().listStatus(path, filter);
    } catch (FileNotFoundException e) {
      return new FileStatus[0];
    } catch (IOException e) {
      throw new UncheckedIOException("the checkpoint folder " + path + " cannot be listed", e);
    }
  }

  /** One file on its way up; nothing is visible before close() has returned. */
  private final class Upload extends CancellableFSDataOutputStream {
    private final FSDataOutputStream out;
    private final Path path;
    private final String onlyBy;
    private boolean ended;

    Upload(FSDataOutputStream out, Path path, String onlyBy) {
      super(out);
      this.out = out;
      this.path = path;
      this.onlyBy = onlyBy;
    }

    @Override
    public synchronized void cancel() {
      if (ended) {
        return;
      }
      ended = true;
      try {
        out.abort();
        out.close();
      } catch (IOException e) {
        // Spark calls this while it handles the error that matters; nothing of the file is visible
        log().warn("giving up the checkpoint file {} failed", path, e);
      }
    }

    @Override
    public synchronized void close() throws IOException {
      if (ended) {
        return;
      }
      ended = true;
      try {
        out.close();
      } catch (RemoteFileChangedException e) {
        if (onlyBy == null) {
          throw e;
        }
        if (!onlyBy.equals(writer())) {
          FileAlreadyExistsException taken =
              new FileAlreadyExistsException("another driver created the checkpoint file " + path);
          taken.initCause(e);
          throw taken;
        }
      }
    }

    /** Return who wrote the object that is there. */
    private String writer() throws IOException {
      byte[] found = fs().getXAttrs(path).get("header." + WRITER);
      return found == null ? "" : new String(found, StandardCharsets.UTF_8);
    }
  }
}
