package differential

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import scala.collection.mutable

import org.apache.hadoop.fs.{FSDataOutputStream, LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.util.Progressable
import org.apache.hudi.client.transaction.lock.InProcessLockProvider
import org.apache.hudi.common.config.LockConfiguration
import org.apache.hudi.storage.StorageConfiguration

/** One writer: the point at which it is to stop, where it is stopped, and its requested instants. */
final class Writer(base: String, patienceMs: Long) {
  private val instants = mutable.ListBuffer.empty[String]
  private val home = base + "/.hoodie/"
  private val inner = home + "metadata/"
  private var target = ""
  private var at = ""
  private var ended = false
  private var inflight = false
  private var requested = false
  private var locks = 0

  /** Lets it continue, to stop at a point that is still ahead, or nowhere. */
  def send(point: String): Unit = synchronized { target = point; notifyAll() }

  /** Waits until it has stopped at the point or has ended. */
  def arrive(point: String): String = synchronized {
    patiently(at != point && !ended)
    if (at == point) "reached" else if (ended) "ended" else s"timed out before '$target'"
  }

  def end(): Unit = synchronized { ended = true; notifyAll() }

  def requests: String = synchronized { instants.mkString(",") }

  private def stand(point: String): Unit = synchronized {
    if (target == point) {
      at = point
      notifyAll()
      patiently(target == point)
      at = ""
      if (target == point) throw new IllegalStateException(s"the latch '$point' timed out")
    }
  }

  private def patiently(pending: => Boolean): Unit = {
    val end = System.nanoTime + patienceMs * 1000000
    while (pending && System.nanoTime < end) wait(1 + (end - System.nanoTime) / 1000000)
  }

  private def timelineFile(path: Path): Option[String] = {
    val text = path.toUri.getPath
    if (text.startsWith(home) && !text.startsWith(inner)) Some(path.getName) else None
  }

  // The inflight file's time is that of the temporary file which 1.2 writes first and then renames.
  def before(path: Path): Unit = timelineFile(path).foreach {
    case Writer.BeforeInflight() => stand("before_inflight")
    case _ =>
  }

  def after(path: Path): Unit = timelineFile(path).foreach {
    case Writer.Requested(instant) =>
      synchronized { instants += instant }
      if (locks == 0) stand("requested") else requested = true
    case Writer.Inflight() =>
      inflight = true
      stand("inflight")
    case Writer.Completed() => stand("completed")
    case _ =>
  }

  def beforeLock(): Unit = if (inflight) stand("commit")

  def locked(): Unit = locks += 1

  def unlocked(): Unit = {
    locks -= 1
    if (requested && locks == 0) { requested = false; stand("requested") }
  }
}

object Writer {
  private val Requested = """(\d{17}\.\w+)\.requested""".r
  private val BeforeInflight = """\d{17}(?:\.\w+)?\.inflight(?:\..+)?""".r
  private val Inflight = """\d{17}(?:\.\w+)?\.inflight""".r
  private val Completed = """\d{17}_\d{17}\.\w*commit""".r
}

/** The writers of this JVM by the thread that they run on. */
object Latches {
  private val writers = new ConcurrentHashMap[Thread, Writer]()

  def create(base: String, patienceMs: Long): Writer = new Writer(base, patienceMs)

  def enter(writer: Writer): Unit = writers.put(Thread.currentThread, writer)

  def leave(): Unit = Option(writers.remove(Thread.currentThread)).foreach(_.end())

  def current(action: Writer => Unit): Unit = {
    val writer = writers.get(Thread.currentThread)
    if (writer != null) action(writer)
  }
}

/** Hudi's lock of one JVM, with a stop before the first acquisition after the inflight file. */
class LatchedLockProvider(lock: LockConfiguration, storage: StorageConfiguration[_])
    extends InProcessLockProvider(lock, storage) {
  override def tryLock(time: Long, unit: TimeUnit): Boolean = {
    Latches.current(_.beforeLock())
    val taken = super.tryLock(time, unit)
    if (taken) Latches.current(_.locked())
    taken
  }

  override def unlock(): Unit = {
    super.unlock()
    Latches.current(_.unlocked())
  }
}

/** Local files, without a `chmod` process for each of them. */
class QuickLocalFileSystem extends RawLocalFileSystem {
  override def setPermission(path: Path, permission: FsPermission): Unit = ()
}

/** Local files, with stops where a timeline file is requested or becomes inflight. */
class LatchedFileSystem extends LocalFileSystem(new QuickLocalFileSystem) {
  override def rename(from: Path, to: Path): Boolean = {
    Latches.current(_.before(to))
    val renamed = super.rename(from, to)
    if (renamed) Latches.current(_.after(to))
    renamed
  }

  override def create(
      path: Path, permission: FsPermission, overwrite: Boolean, buffer: Int, replication: Short,
      block: Long, progress: Progressable): FSDataOutputStream = {
    Latches.current(_.before(path))
    val stream = super.create(path, permission, overwrite, buffer, replication, block, progress)
    Latches.current(_.after(path))
    stream
  }
}
