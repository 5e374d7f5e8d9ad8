package stalls

import java.nio.file.{Files, Paths}
import java.util.EnumSet

import org.apache.hadoop.fs.{
  CreateFlag, FSDataInputStream, FSDataOutputStream, FileStatus, LocalFileSystem, Path, RawLocalFileSystem
}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable

/** Local files that answer no call while the file named by `stalls.file` is there. */
class StallingRawFileSystem extends RawLocalFileSystem {
  private def answered[T](call: => T): T = {
    val stall = Paths.get(getConf.get("stalls.file"))
    var interrupted = false
    while (Files.exists(stall)) {
      try Thread.sleep(20) catch { case _: InterruptedException => interrupted = true }
    }
    if (interrupted) Thread.currentThread.interrupt()
    call
  }

  override def open(path: Path, buffer: Int): FSDataInputStream = answered(super.open(path, buffer))

  override def create(
      path: Path, overwrite: Boolean, buffer: Int, replication: Short, block: Long,
      progress: Progressable): FSDataOutputStream =
    answered(super.create(path, overwrite, buffer, replication, block, progress))

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, buffer: Int, replication: Short,
      block: Long, progress: Progressable): FSDataOutputStream =
    answered(super.create(path, permission, overwrite, buffer, replication, block, progress))

  override def createNonRecursive(
      path: Path, permission: FsPermission, flags: EnumSet[CreateFlag], buffer: Int,
      replication: Short, block: Long, progress: Progressable): FSDataOutputStream =
    answered(super.createNonRecursive(path, permission, flags, buffer, replication, block, progress))

  override def append(path: Path, buffer: Int, progress: Progressable): FSDataOutputStream =
    answered(super.append(path, buffer, progress))

  override def rename(from: Path, to: Path): Boolean = answered(super.rename(from, to))

  override def delete(path: Path, recursive: Boolean): Boolean = answered(super.delete(path, recursive))

  override def listStatus(path: Path): Array[FileStatus] = answered(super.listStatus(path))

  override def mkdirs(path: Path): Boolean = answered(super.mkdirs(path))

  override def mkdirs(path: Path, permission: FsPermission): Boolean =
    answered(super.mkdirs(path, permission))

  override def getFileStatus(path: Path): FileStatus = answered(super.getFileStatus(path))

  override def setPermission(path: Path, permission: FsPermission): Unit = ()
}

class StallingFileSystem extends LocalFileSystem(new StallingRawFileSystem)
