"""Refuses the late commits of a driver on the thread that makes them.

``run_job.py`` runs this file if its payload contains it. Spark's own Janino compiles the Java below in
the driver's JVM. Hadoop then makes a subclass of the file system's class wherever it would make that
class: it checks each completed instant of a timeline just before the storage shows it. No thread of
Python takes part in a refusal. This file runs on machines without the provider: it imports the standard
library only.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from typing import Any

GUARD = r"""
package PACKAGE;

import java.io.IOException;
import java.lang.reflect.Field;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

public class Guard {
  public static final Guard GUARD = new Guard();

  // <time>.<action> in .hoodie, or <requested>_<completed>.<action> in a folder of it.
  private static final Pattern COMPLETED = Pattern.compile(
      ".*/\\.hoodie/(?:[^/.][^/]*/)?(\\d+)(?:_\\d+)?\\.(?!inflight$|requested$)([a-z]+)");
  private static final Pattern WRITE = Pattern.compile("commit|deltacommit|replacecommit");

  private volatile boolean closed = false;
  // nanoTime and wall clock (ms) of its end, the margin and the patience (ns)
  private volatile long[] life = null;
  private final Map passing = new ConcurrentHashMap();  // path -> requested time
  private final Set committed = Collections.synchronizedSet(new LinkedHashSet());

  public void setClosed(boolean value) { closed = value; }
  public boolean isClosed() { return closed; }
  public long nanoTime() { return System.nanoTime(); }
  public long wallTime() { return System.currentTimeMillis(); }
  public String passing() { return String.join(" ", passing.values()); }
  public String committed() { synchronized (committed) { return String.join(" ", committed); } }

  public synchronized boolean extend(
      long nanos, long millis, double seconds, double margin, double patience) {
    if (life != null && left() <= 0) return false;
    life = new long[] {
      nanos + (long) (seconds * 1e9), millis + (long) (seconds * 1e3), (long) (margin * 1e9),
      (long) (patience * 1e9)
    };
    return true;
  }

  private long left() {
    long[] end = life;
    return Math.min(end[0] - System.nanoTime(), (end[1] - System.currentTimeMillis()) * 1000000L);
  }

  /** Returns why no commit may begin; waits a while for the life to be extended. */
  public String refusal() {
    long since = System.nanoTime();
    while (true) {
      if (closed) return "its driver ends";
      long[] end = life;
      if (end == null) return null;
      long left = left();
      if (left <= 0) return "the lease is over";
      if (left >= end[2]) return null;
      String reason = "too little of the lease is left, " + left / 1e9 + " s";
      if (System.nanoTime() - since >= end[3]) return reason;
      try {
        Thread.sleep(20);
      } catch (InterruptedException interrupt) {
        Thread.currentThread().interrupt();
        return reason;
      }
    }
  }

  /** Names a commit as passing, and only then looks whether it may pass; false for another file. */
  public boolean begin(Path path) throws IOException {
    String name = path.toUri().getPath();
    if (name.indexOf("/.hoodie/") < 0) return false;
    Matcher instant = COMPLETED.matcher(name);
    if (!instant.matches()) return false;
    boolean isNew = passing.put(name, instant.group(1)) == null;
    String reason = refusal();
    if (reason == null) return true;
    if (isNew) passing.remove(name);
    throw refused(path, reason);
  }

  /** Looks once more, before the storage shows a file that has been written. */
  public void check(Path path) throws IOException {
    String reason = refusal();
    if (reason == null) return;
    passing.remove(path.toUri().getPath());
    throw refused(path, reason);
  }

  /** Takes note of the storage's answer. */
  public void end(Path path, boolean shown) {
    String name = path.toUri().getPath();
    Matcher instant = COMPLETED.matcher(name);
    boolean ofTable = name.indexOf("/.hoodie/metadata/.hoodie/") < 0;
    if (shown && ofTable && instant.matches() && WRITE.matcher(instant.group(2)).matches())
      committed.add(instant.group(1));
    passing.remove(name);
  }

  public void refuseOtherWay(Path path) throws IOException {
    if (COMPLETED.matcher(path.toUri().getPath()).matches())
      throw refused(path, "it is written in a way that the guard does not know");
  }

  /** Has Hadoop make a subclass instead of a class of file systems, and make its instances anew. */
  public static void replace(Class plain, Class guarded) throws Exception {
    Field made = org.apache.hadoop.util.ReflectionUtils.class.getDeclaredField("CONSTRUCTOR_CACHE");
    made.setAccessible(true);
    ((Map) made.get(null)).put(plain, guarded.getDeclaredConstructor(new Class[0]));
    Field shared = FileSystem.class.getDeclaredField("CACHE");
    shared.setAccessible(true);
    Object cache = shared.get(null);
    Field map = cache.getClass().getDeclaredField("map");
    map.setAccessible(true);
    synchronized (cache) {
      Iterator instances = ((Map) map.get(cache)).values().iterator();
      while (instances.hasNext()) if (plain.isInstance(instances.next())) instances.remove();
    }
  }

  private static IOException refused(Path path, String reason) {
    return new IOException("airflow_occ_provider refused to complete " + path + ": " + reason);
  }
}

/** A completed instant that is being written. */
public class GuardedStream extends FSDataOutputStream {
  private final Path path;
  private final boolean shownAtClose;
  private boolean over = false;

  public GuardedStream(FSDataOutputStream stream, Path path, boolean shownAtClose) throws IOException {
    super(stream, null);
    this.path = path;
    this.shownAtClose = shownAtClose;
  }

  public void close() throws IOException {
    if (over) return;
    over = true;
    if (shownAtClose) Guard.GUARD.check(path);  // what is never closed is never shown
    super.close();
    Guard.GUARD.end(path, true);
  }
}
"""

FILE_SYSTEM = r"""
package PACKAGE;

import java.io.IOException;
import java.util.EnumSet;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class GuardedFileSystem extends %s {
  public boolean rename(Path from, Path to) throws IOException {
    if (!Guard.GUARD.begin(to)) return super.rename(from, to);
    boolean renamed = super.rename(from, to);
    Guard.GUARD.end(to, renamed);
    return renamed;
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int buffer,
      short replication, long block, Progressable progress) throws IOException {
    if (!Guard.GUARD.begin(path))
      return super.create(path, permission, overwrite, buffer, replication, block, progress);
    FSDataOutputStream stream =
        super.create(path, permission, overwrite, buffer, replication, block, progress);
    return new GuardedStream(stream, path, !exists(path));
  }

  public FSDataOutputStream createNonRecursive(Path path, FsPermission permission, EnumSet flags,
      int buffer, short replication, long block, Progressable progress) throws IOException {
    Guard.GUARD.refuseOtherWay(path);
    return super.createNonRecursive(path, permission, flags, buffer, replication, block, progress);
  }
}
"""

LOG = r"""
package PACKAGE;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.Marker;
import org.apache.logging.log4j.core.Filter;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.filter.AbstractFilter;

/** Refuses at Hudi's last line before a commit; it is asked before the logger's level is. */
public class GuardedLog extends AbstractFilter {
  public Filter.Result filter(Logger logger, Level level, Marker marker, String line, Object[] values) {
    if (line != null && line.startsWith("Marking instant complete")) {
      String reason = Guard.GUARD.refusal();
      if (reason != null)
        throw new IllegalStateException("airflow_occ_provider refused a commit: " + reason);
    }
    return Filter.Result.NEUTRAL;
  }
}
"""

SIGNAL = r"""
package PACKAGE;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import sun.misc.Signal;
import sun.misc.SignalHandler;

/** Takes SIGTERM before the hooks of a JVM that ends do: beside them a commit would go on. */
public class StopSignal implements SignalHandler {
  private final CountDownLatch asked = new CountDownLatch(1);
  private final SignalHandler before = Signal.handle(new Signal("TERM"), this);

  public boolean comesWithin(double seconds) throws InterruptedException {
    return asked.await((long) (seconds * 1e3), TimeUnit.MILLISECONDS);
  }

  /** Leaves the end to the driver; if that does not kill this JVM in time, to the handler before. */
  public void handle(Signal signal) {
    asked.countDown();
    try {
      TimeUnit.SECONDS.sleep(LIMIT_S);
    } catch (InterruptedException interrupt) {
      Thread.currentThread().interrupt();
    }
    before.handle(signal);
  }
}
"""

_SIGNAL_S = 60  # longer than a driver takes to drain a commit and to report its end
_SIGNAL_STEP_S = 0.5
_LONGEST_S = 1e9  # Py4J has no infinity
_IMPOSSIBLE_TABLE = ".airflow_occ_no_table"


class CommitGuard:
    """The guard of one driver.

    :param jvm: the driver's.
    :param tables: URLs of the tables, as Hadoop reads them.
    :param configuration: Hadoop's.
    """

    def __init__(self, jvm: Any, tables: Iterable[str], configuration: Any) -> None:
        self._jvm, self._tables, self._configuration = jvm, tuple(tables), configuration
        # Py4J takes classes of one name for the same class: those of another guard have another one.
        self._package = f"airflow_occ_{os.urandom(8).hex()}"
        self._loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        java_class = self._compiled(GUARD, "Guard")
        self._loader = java_class.getClassLoader()
        self._java = java_class.getField("GUARD").get(None)
        plain = {self._class_of(table).getName(): self._class_of(table) for table in self._tables}
        for name, of_hadoop in plain.items():
            guarded = self._compiled(FILE_SYSTEM % name.replace("$", "."), "GuardedFileSystem")
            self._java.replace(of_hadoop, guarded)

    def _compiled(self, source: str, name: str) -> Any:
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self._loader)
        compiler.cook(source.replace("PACKAGE", self._package, 1))
        return compiler.getClassLoader().loadClass(f"{self._package}.{name}")

    def _class_of(self, table: str) -> Any:
        files = self._jvm.org.apache.hadoop.fs.FileSystem
        scheme = self._jvm.org.apache.hadoop.fs.Path(table).toUri().getScheme()
        scheme = scheme or files.getDefaultUri(self._configuration).getScheme()
        return files.getFileSystemClass(scheme, self._configuration)

    def extend(self, left_s: Callable[[], float], margin_s: float, patience_s: float = 0.0) -> None:
        """Set when the driver's life ends; a life that is over stays over.

        Before the first call there is no end.

        :param left_s: returns the seconds until then, infinite if there is no end. It is called after
            the clocks of the JVM were read: a stop in between shortens the life only.
        :param margin_s: with less than this no commit begins; infinite if none may begin yet.
        :param patience_s: the longest wait of a commit for the next call, if it may not begin.
        """
        nanos, millis = self._java.nanoTime(), self._java.wallTime()
        seconds = left_s()
        if not math.isinf(seconds):
            margin_s = min(float(margin_s), _LONGEST_S)
            self._java.extend(nanos, millis, float(seconds), margin_s, float(patience_s))

    def close(self) -> None:
        """Refuse all commits from now on; one that is passing goes on."""
        self._java.setClosed(True)

    def state(self) -> tuple[bool, str | None, tuple[str, ...]]:
        """Return whether it is closed, a passing commit, and the commits that are over.

        Each is the requested time of an instant. A commit to which the storage has answered by an
        error is passing for good: whether it is there is not known.
        """
        is_closed = self._java.isClosed()
        passing = self._java.passing().split()  # read before those that are over: none is missed
        return is_closed, next(iter(passing), None), tuple(self._java.committed().split())

    def wait_for_signal(self) -> None:
        """Wait until the JVM gets SIGTERM.

        From now on the signal does not end it at once.
        """
        source = SIGNAL.replace("LIMIT_S", str(_SIGNAL_S))
        stop_signal = self._compiled(source, "StopSignal").newInstance()
        # A call in Java keeps the JVM alive, also after the job and its Python are over.
        while not stop_signal.comesWithin(_SIGNAL_STEP_S):
            pass

    def prove(self) -> str | None:
        """Return why this driver's commits would not be refused, or None.

        Closed, it refuses to complete an instant of a table that does not exist, through the file system
        that Hudi would use. Nothing reaches the storage.
        """
        self._java.setClosed(True)
        try:
            return next(filter(None, map(self._hole, self._tables)), None)
        finally:
            self._java.setClosed(False)

    def _hole(self, table: str) -> str | None:
        fs = self._jvm.org.apache.hadoop.fs
        timeline = f"{table.rstrip('/')}{_IMPOSSIBLE_TABLE}/.hoodie"
        files = self._jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getFs(table, self._configuration)
        try:
            name = files.getClass().getName()
            if name != f"{self._package}.GuardedFileSystem":
                return f"Hadoop makes {name} for {table}"
            source = fs.Path(f"{timeline}/part")
            for instant in ("1.commit", "timeline/1_2.deltacommit"):
                path = fs.Path(f"{timeline}/{instant}")
                if not (_refuses(files.create, path) and _refuses(files.rename, source, path)):
                    return f"a completed instant of {table} is not refused"
        finally:
            files.close()  # the job may still configure it: it is made anew
        return None

    def check_log_too(self) -> str | None:
        """Refuse at Hudi's log line before a commit as well, or return why not.

        This covers file systems that Hadoop does not make, and depends on the text of the line.
        """
        try:
            log_filter = self._compiled(LOG, "GuardedLog").newInstance()
            log_filter.start()
            log4j = self._jvm.org.apache.logging.log4j
            # Each class loader has a context: with userClassPathFirst, Hudi's is not Spark's.
            for context in log4j.LogManager.getFactory().getSelector().getLoggerContexts():
                context.getConfiguration().addFilter(log_filter)
                context.updateLoggers()
        except Exception as error:  # noqa: BLE001 - another logging library
            return str(error)
        return None


def _refuses(call: Callable[..., object], *paths: Any) -> bool:
    try:
        call(*paths)
    except Exception as error:  # noqa: BLE001 - of Java
        return "airflow_occ_provider refused" in str(error)
    return False


def installed(jvm: Any, tables: Iterable[str], configuration: Any) -> tuple[CommitGuard | None, str]:
    """Return the guard of this driver, or why there is none.

    :param tables: URLs of the tables that it guards; all tables of their file systems are guarded.
    :param configuration: Hadoop's.
    """
    try:
        guard = CommitGuard(jvm, tables, configuration)
        hole = guard.prove()
    except Exception as error:  # noqa: BLE001 - of Java
        return None, f"{type(error).__name__}: {error}"
    return (None, hole) if hole else (guard, "")
