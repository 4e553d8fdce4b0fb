package dev.sluicegate.spark;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, which sets the permissions of a file without starting a process.
 *
 * <p>Without its native library Hadoop starts chmod for each file that it creates, and for the file
 * with its checksums. A state store copies the files of RocksDB with it: from the checkpoint into its
 * working folder at each load, and into a checkpoint on a disk at each snapshot.
 */
public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new WithoutProcesses());
  }

  private static final class WithoutProcesses extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) { // java.nio has no name for it
        super.setPermission(path, permission);
        return;
      }
      Files.setPosixFilePermissions(
          pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
    }
  }
}
