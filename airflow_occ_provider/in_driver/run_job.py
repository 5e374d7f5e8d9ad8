"""Runs a user's PySpark job in a driver that has proven its protection.

Runs on Python 3.7 and later, as Spark 3.3 to 3.5 do.

It is submitted instead of the job as ``run_job.py FOLDER``, or with ``--airflow_occ_folder FOLDER``
among other arguments: the folder of an attempt, a path of this host or a URL of Hadoop's. It waits
there until it is granted (``granted.py``), and reads its payload: Hudi's options, the job and its
arguments, the rules that no configuration of the site may break, and the lock's classes. Before the
job's first line, this program adds the options to Hudi's configuration, and reads it again. The job
does not run if one contradicts the rules or has another value, or a class is missing. What decides the
outcome is reported to the folder; the log is for people. ``driver/shipped.py`` makes one file of it and
of what it imports.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import signal
import socket
import sys
import threading
import time
import types

EXIT_UNPROTECTED = 78  # EX_CONFIG
KILL_S = 5.0  # until a signal that had no effect is followed by something else
# The loggers by which the attempt is followed; they stay at INFO at any level that the job sets.
FOLLOWED_LOGGERS = (
    "org.apache.hudi.common.table.timeline",
    "org.apache.hudi.client.transaction",
    "org.apache.hudi.client.utils.TransactionUtils",
    "org.apache.hudi.async.AsyncCleanerService",
    "org.apache.hudi.table.action.rollback.BaseRollbackPlanActionExecutor",
)
LAYOUT = '{"fact": "hudi", "logger": "%c{1}", "message": "%enc{%m}{JSON}", "thread": "%enc{%t}{JSON}"}%n'
FOLLOW_S = 1.0  # how soon it is noticed that log4j was configured anew
MOST_FAILURES = 10
START_FIELD = 19  # of /proc/PID/stat, counted from the process state, which follows the name
MOST_FRAMES, MOST_CAUSES, MOST_OF_A_MESSAGE = 12, 20, 20_000
REMOTE_EXCEPTION = "org.apache.hadoop.ipc.RemoteException"
EXTENSIONS = "spark.sql.extensions"  # a list, in which Hudi's stands beside others
API_MODE = "SPARK_API_MODE"  # the other variables that rules name may have no value at all
REMOTE = re.compile(r"[a-zA-Z][\w+.-]*:")
NAMED_FOLDER = "--airflow_occ_folder"  # AWS Glue passes named arguments only
GRANTED = []  # the granted driver of an attempt's folder
RUNNER = os.getpid()
REPORTS = []  # where the facts of a granted driver go
GUARD = []  # the guard of the driver's commits, if its payload has one
STOPPED = []  # why the job was stopped


def protected(jvm, payload):
    """Protect the driver, and return whether that is proven; report it."""
    problem = protect(jvm, payload) or missing_class(jvm, payload["classes"])
    problem = problem or unguarded(jvm, payload.get("guard"))
    if problem:
        report("not_protected", reason=f"{problem}; the job was not started")
        return False
    complete_session(jvm, payload["spark"])
    session = payload["session"]
    program("session_rules", session["program"]).watch(session, contradiction, stop)
    followed = follow(jvm, *((facts.path, facts.line_start) for facts in REPORTS))
    for facts in REPORTS:
        facts.hide()
    # A main class may leave by System.exit, of which this process learns nothing.
    reports_end = os.path.basename(payload["application"]) != "run_main.py"
    report("protected", options=len(payload["options"]), followed=followed, reports_end=reports_end)
    return True


def run_protected(payload):
    """Run the job in a driver that ends itself after a long pause."""
    threading.Thread(target=die_after_pause, args=(payload["pause_s"],), daemon=True).start()
    run(payload["application"], payload["arguments"], payload.get("application_digest"))


def main(url):
    """Wait for the grant, then protect the driver and run the job."""
    from pyspark import SparkContext

    from airflow_occ_provider.driver.contract import EXIT_REFUSED, LIMIT_S, Leave
    from airflow_occ_provider.in_driver import folder, granted, standby

    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    is_local = folder.is_local(url)
    files = (
        folder.LocalFolder(url) if is_local else folder.HadoopFolder(jvm, hadoop_configuration(jvm), url)
    )
    warming = standby.read(files) if is_local else None
    limit_s = warming.limit_s if warming else LIMIT_S
    waiting = granted.WaitingDriver(files, details_of_driver(jvm, url), granted.end_process, limit_s)
    if has_context(jvm):
        why = "this JVM already runs a Spark application: start a driver that runs nothing else"
        waiting.write_left(why)
        granted.say_left(why)
        return EXIT_REFUSED
    die_with_driver()
    if warming:
        complete_session(jvm, warming.settings)
        standby.warm_up(files)
    outcome = waiting.wait()
    if isinstance(outcome, Leave):
        granted.say_left(outcome.why)
        return EXIT_REFUSED
    return run_granted(jvm, files, waiting.nonce, outcome)


def run_granted(jvm, files, nonce, admission):
    """Run the job of the payload that was granted."""
    from airflow_occ_provider.driver.contract import DriverPace, Life
    from airflow_occ_provider.in_driver import granted

    payload = json.loads(admission.payload)
    ttl_s = payload.get("ttl_s")
    pace = DriverPace.of(ttl_s, payload.get("tick_s"), payload.get("poll_s"))
    facts = report_to(files, payload, pace)
    life = Life.begin(ttl_s, admission.run.since, is_leased=payload.get("is_leased", True))
    killer = functools.partial(kill, jvm, process_of(jvm))
    driver = granted.GrantedDriver(files, nonce, life, facts, say=report, kill=killer, pace=pace)
    REPORTS.append(facts)
    GRANTED.append(driver)
    driver.start()
    # On the worker the processes' end proves the driver's, and Spark's hooks remove its scratch folders.
    is_on_worker = payload.get("is_private")
    if not is_on_worker:
        driver.heed_signal()
    with reporting():
        try:
            is_protected = protected(jvm, payload)
        except BaseException as error:
            report("fatal", causes=causes_of(error))
            report("end", exit_code=1, **driver.finish(has_run=False))
            raise
        if not is_protected:
            report("end", exit_code=EXIT_UNPROTECTED, **driver.finish(has_run=False))
            return EXIT_UNPROTECTED
        for guard in GUARD:
            driver.guarded(guard)
            if not is_on_worker:
                driver.heed_signal_of_jvm()
        if driver.is_over():
            granted.wait_for_the_end()
        run_protected(payload)
    return 0


def report_to(files, payload, pace):
    """Return what takes the driver's facts to its folder."""
    from airflow_occ_provider.driver.contract import FACTS
    from airflow_occ_provider.in_driver.report import LocalReport, Report

    if payload.get("is_private"):
        return LocalReport(files.path)
    pause_s = pace.report_pause_s if files.is_remote else 0.0
    return Report(lambda content: files.write(FACTS, content), report, pause_s=pause_s)


def details_of_driver(jvm, url):
    """Return what a driver says of itself while it waits."""
    from pyspark import SparkConf, __version__

    conf, in_yarn = SparkConf(), details_in_yarn()
    application = conf.get("spark.app.id") or conf.get("spark.yarn.app.id") or ""
    return {
        **in_yarn,
        **details_of_process(process_of(jvm)),
        "folder": url,
        "application_id": application or in_yarn.get("application_id", ""),
        "host": socket.gethostname(),
        "pid": str(os.getpid()),
        "python": platform.python_version(),
        "pyspark": __version__,
        "spark": jvm.org.apache.spark.package.SPARK_VERSION(),
    }


def details_of_process(pid):
    """Return what distinguishes the JVM from any other process, if that is known."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = pathlib.Path(f"/proc/{pid}/ns/pid").stat().st_ino
    except OSError:
        return {}
    started = stat.rpartition(")")[2].split()[START_FIELD]
    return {
        "jvm_pid": str(pid),
        "jvm_started": started,
        "boot": boot,
        "pid_namespace": f"pid:[{namespace}]",
    }


def details_in_yarn():
    """Return what YARN calls the container of this process; nothing elsewhere."""
    container = os.environ.get("CONTAINER_ID", "")
    numbers = re.match(r"container_(?:e\d+_)?(\d+_\d+)_", container)
    if not numbers:
        return {}
    return {"container": container, "application_id": f"application_{numbers.group(1)}"}


def has_context(jvm):
    """Return whether this JVM has a SparkContext, as that of a notebook has."""
    return jvm.org.apache.spark.SparkEnv.get() is not None


def process_of(jvm):
    """Return the process of the JVM, which is not always this one's parent."""
    try:
        name = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getName()
    except Exception:  # Py4J of Spark 3.3 does not reach the bean's class in Java 17
        return int(jvm.java.lang.ProcessHandle.current().pid())
    return int(name.partition("@")[0])


def kill(jvm, process):
    """End the driver at once.

    No hook of its JVM runs: a commit would go on beside it.
    """
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGKILL)
    time.sleep(KILL_S)

    def halt():
        with contextlib.suppress(Exception):  # it is gone, and it was not the parent of this process
            jvm.java.lang.Runtime.getRuntime().halt(EXIT_UNPROTECTED)

    # The first process of a container ignores the signal.
    halting = threading.Thread(target=halt, daemon=True)
    halting.start()
    halting.join(KILL_S)
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def reporting():
    """Report the rest of the facts at the end of a block."""
    try:
        yield
    finally:
        close_reports()


def close_reports():
    """Report the rest of the facts."""
    for facts in REPORTS:
        facts.close()


def program(name, source):
    """Return a file of ours from the payload as a module."""
    module = types.ModuleType(f"airflow_occ_{name}")
    exec(compile(source, f"{name}.py", "exec", dont_inherit=True), vars(module))
    return module


def stop(reason):
    """Stop the job before it writes what is not protected; see ``session_rules.py``."""
    STOPPED.append(reason)
    report("not_protected", reason=f"{reason}; the write was not started")
    sys.exit(EXIT_UNPROTECTED)


def hadoop_configuration(jvm):
    """Return Hadoop's configuration, with what Spark's adds to it."""
    spark = jvm.org.apache.spark
    return spark.deploy.SparkHadoopUtil.get().newConfiguration(spark.SparkConf())


def content_of(name):
    """Return the content of a file, of this machine or of Hadoop's file systems."""
    if not REMOTE.match(plain_path(name)):
        return pathlib.Path(plain_path(name)).read_bytes()
    jvm, files, remote = remote_file(name)
    with contextlib.closing(files.open(remote)) as stream:
        return jvm.org.apache.commons.io.IOUtils.toByteArray(stream)


def remote_file(name):
    """Return the driver's JVM, and a file with its file system there."""
    from pyspark import SparkContext

    jvm = SparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(name)
    return jvm, path.getFileSystem(hadoop_configuration(jvm)), path


def plain_path(name):
    """Return a file's path without what says that it is one of this machine."""
    return re.sub("^(file|local):(//)?", "", name)


def local_path(name):
    """Return a file's path on this machine; of a remote file, its name."""
    path = plain_path(name)
    return os.path.basename(path) if REMOTE.match(path) else path


def run(application, arguments, digest=None):
    """Run the job, and report its end."""
    code = 1
    report_sudden_end()
    try:
        become(application, arguments, digest)
        if STOPPED:  # in another thread, or the job caught it
            sys.exit(EXIT_UNPROTECTED)
        code = 0
    except SystemExit as left:
        code = left.code & 0xFF if isinstance(left.code, int) else int(left.code is not None)
        handled = left.__cause__ or (None if left.__suppress_context__ else left.__context__)
        if code and handled is not None:  # the job leaves while it handles this
            report("fatal", causes=causes_of(handled))
        raise
    except BaseException as error:
        report("fatal", causes=causes_of(error))
        raise
    finally:
        join_threads()
        report_end(code)


def join_threads():
    """Wait for the job's threads, as Python does: a granted driver ends here."""
    if GRANTED:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()


def report_end(code):
    """Report the end of the job; a granted driver adds its commits."""
    if os.getpid() == RUNNER:
        report("end", exit_code=code, **(GRANTED[0].finish() if GRANTED else {}))


def report_sudden_end():
    """Have ``os._exit`` report the end of this process too, but not that of its forks."""
    leave = os._exit

    def report_and_leave(status):
        report_end(status & 0xFF)
        if os.getpid() == RUNNER:
            close_reports()
        leave(status)

    os._exit = report_and_leave


def die_with_driver():
    """Have Linux kill this process together with the JVM that started it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def die_after_pause(limit_s):
    """End the driver after a pause in which another try may have taken its place.

    Before it has requested an instant the table does not show it, so no clean of a later try stops it.
    """
    while True:
        clock_s, cpu_s = time.monotonic(), time.process_time()
        time.sleep(0.5)
        gap_s = time.monotonic() - clock_s  # a pause uses no CPU time; a call that blocks does
        if gap_s > limit_s and time.process_time() - cpu_s < gap_s / 10:
            report("paused", seconds=round(gap_s), limit=limit_s)
            os.kill(os.getppid(), signal.SIGKILL)


def report(fact, **details):
    """Report a fact.

    A fork of this process, such as a daemon that the job starts, has nothing to report.
    """
    if os.getpid() == RUNNER:
        line = json.dumps({"fact": fact, **details}).encode() + b"\n"
        for facts in REPORTS:
            facts.add(line)


def causes_of(error):
    """Describe an exception with its causes in Python and the JVM, outermost first."""
    causes = []
    while error is not None and len(causes) < MOST_CAUSES:
        of_jvm = type(error).__module__.startswith("pyspark.errors.")
        causes.append(described(python_name(type(error)), text_of(error), of_jvm, []))
        try:
            of_java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
            causes += causes_in_jvm(of_java)
        except Exception as lost:  # the JVM is gone
            causes.append(described(python_name(type(lost)), text_of(lost), False, []))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return causes


def causes_in_jvm(throwable):
    """Describe a Java exception with its causes."""
    causes = []
    while throwable is not None and len(causes) < MOST_CAUSES:
        trace = [f"at {frame.toString()}" for frame in throwable.getStackTrace()[:MOST_FRAMES]]
        name = throwable.getClass().getName()
        message = throwable.getMessage() or ""
        if name == REMOTE_EXCEPTION:  # its message lacks the class of what the server threw
            message = f"{throwable.getClassName()}: {message}"
        causes.append(described(name, message, True, trace))
        throwable = throwable.getCause()
    return causes


def text_of(error):
    """Return an exception's message; Py4J's also contains a stack trace."""
    try:
        return str(getattr(error, "errmsg", None) or error)
    except Exception:
        return ""


def described(name, message, of_jvm, frames):
    """Return a cause in the form of the report."""
    return {"type": name, "message": message[:MOST_OF_A_MESSAGE], "jvm": of_jvm, "frames": frames}


def python_name(kind):
    """Return a class's name as a traceback has it."""
    plain = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if plain else f"{kind.__module__}.{kind.__qualname__}"


def protect(jvm, payload):
    """Give Hudi the options; return why the job is not protected, or None."""
    from pyspark import SparkConf

    hudi = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
    try:
        properties = hudi.getGlobalProps()
    except TypeError:
        return "Hudi is not on the driver's classpath (give its bundle by packages= or jars=)"
    of_site = {key: properties.getProperty(key) for key in properties.stringPropertyNames()}
    variables = ((name, os.environ[name] if name == API_MODE else "") for name in os.environ)
    of_spark = [*SparkConf().getAll(), *variables]
    places = {place_of_defaults(jvm): of_site.items(), "Spark's own configuration": of_spark}
    problems = (contradiction(options, payload["rules"], place) for place, options in places.items())
    problem = next(filter(None, problems), None)
    if problem:
        return problem
    allowed = {
        key: value for key, value in of_site.items() if not key.startswith(tuple(payload["without"]))
    }
    wanted = {**allowed, **payload["options"]}
    try:
        hudi.clearGlobalProps()
        for key, value in wanted.items():
            hudi.addToGlobalProps(key, value)
    except Exception as error:
        return f"this release of Hudi does not take options ({error})"
    read = hudi.getGlobalProps()
    wrong = [key for key in {**of_site, **wanted} if read.getProperty(key) != wanted.get(key)]
    return f"Hudi does not read what was set: {', '.join(wrong)}" if wrong else None


def missing_class(jvm, classes):
    """Return what to do about a class that Hudi needs and cannot load, or None."""
    for needed in classes:
        try:
            jvm.org.apache.hudi.common.util.ReflectionUtils.getClass(needed["name"])
        except Exception as error:
            why = "{type}: {message}".format_map(causes_of(error)[-1])
            return f"the driver cannot load the class {needed['name']} ({why}): {needed['remedy']}"
    return None


def unguarded(jvm, wanted):
    """Install the guard that the payload may have, or return why not."""
    if not wanted:
        return None
    configuration = hadoop_configuration(jvm)
    guard, why = program("guard", wanted["program"]).installed(jvm, wanted["tables"], configuration)
    if guard is None:
        if not wanted.get("is_required", True):
            report("not_guarded", reason=why)
            return None
        return f"only a lease protects it, and its commits cannot be guarded: {why}"
    guard.check_log_too()
    GUARD.append(guard)
    return None


def contradiction(options, rules, place):
    """Return the option that breaks a rule, as ``hudi/writer/options.py`` reads it."""
    for key, text in options:
        value = " ".join(text.split())
        for rule in rules:
            if re.fullmatch(rule["keys"], key.strip()) and not re.fullmatch(rule["allowed"], value):
                return f"{place} has {key}={value}: {rule['remedy']}"
    return None


def complete_session(jvm, settings):
    """Add the settings of Spark that Hudi needs to those of the session to come.

    Every ``SparkConf`` of this JVM reads the system properties, of any kind of job.
    """
    from pyspark import SparkConf

    conf = SparkConf()
    for key, needed in settings.items():
        names = [name.strip() for name in conf.get(key, "").split(",") if name.strip()]
        if not names or (key == EXTENSIONS and needed not in names):
            jvm.java.lang.System.setProperty(key, ",".join([*names, needed]))


def place_of_defaults(jvm):
    """Return where Hudi found options of the site, as far as it is visible."""
    file = jvm.java.lang.Thread.currentThread().getContextClassLoader().getResource("hudi-defaults.conf")
    named = jvm.java.lang.System.getenv("HUDI_CONF_DIR") or "/etc/hudi/conf"
    return file.toString() if file else f"hudi-defaults.conf of {named}"


def follow(jvm, *files):
    """Have Hudi's loggers of instants and conflicts report; return whether they do.

    Each file is given with what its lines begin with.
    """
    try:
        appenders = [reporting_appender(jvm, *file) for file in files]
        followed = attach(jvm, appenders)
    except Exception as error:  # another logging library: the table still shows the outcome
        report("not_followed", reason=str(error))
        return False
    arguments = (jvm, appenders, followed)
    threading.Thread(target=follow_again, args=arguments, daemon=True, name="follow").start()
    return True


def attach(jvm, appenders):
    """Add the appenders to Hudi's loggers; return the configurations' numbers."""
    log4j = jvm.org.apache.logging.log4j
    numbers = set()
    for context, configuration, number in configurations(jvm):
        for name in FOLLOWED_LOGGERS:
            for logger in loggers_of(log4j, configuration, name):
                logger.setLevel(log4j.Level.INFO)
                if logger.getName() == name or not logger.isAdditive():
                    for appender in appenders:
                        logger.addAppender(appender, log4j.Level.INFO, None)
        context.updateLoggers()
        numbers.add(number)
    return numbers


def follow_again(jvm, appenders, followed):
    """Attach the appenders and the guard's filter whenever log4j is configured anew.

    A job may do that, and Spark 4 does when a job makes its session (seen with 4.0.1 and 4.1.0).
    """
    failures = 0
    while failures < MOST_FAILURES:  # then the JVM has ended
        time.sleep(FOLLOW_S)
        try:
            if {number for _, _, number in configurations(jvm)} - followed:
                report("followed_again")  # before: a record may be missing
                followed = attach(jvm, appenders)
                for guard in GUARD:
                    guard.check_log_too()
            failures = 0
        except Exception:  # of a configuration that changes meanwhile too
            failures += 1


def configurations(jvm):
    """Return log4j's contexts, each with its configuration and the number of that."""
    # Each class loader has a context: with userClassPathFirst, Hudi's is not Spark's.
    contexts = jvm.org.apache.logging.log4j.LogManager.getFactory().getSelector().getLoggerContexts()
    pairs = [(context, context.getConfiguration()) for context in contexts]
    number = jvm.java.lang.System.identityHashCode
    return [(context, configuration, number(configuration)) for context, configuration in pairs]


def reporting_appender(jvm, file, line_start):
    """Return a started appender that writes messages as facts to a file."""
    core = jvm.org.apache.logging.log4j.core
    layout = core.layout.PatternLayout.newBuilder().withPattern(line_start + LAYOUT)
    layout = layout.withCharset(jvm.java.nio.charset.StandardCharsets.UTF_8)
    builder = core.appender.FileAppender.newBuilder().withFileName(file).withAppend(True)
    builder.setLayout(layout.withAlwaysWriteExceptions(False).build())
    builder.setName(f"airflow_occ_provider{file}")
    appender = builder.build()
    appender.start()
    return appender


def loggers_of(log4j, configuration, name):
    """Return the configurations of a logger, added if missing, and of those below."""
    if configuration.getLoggerConfig(name).getName() != name:
        configuration.addLogger(name, log4j.core.config.LoggerConfig(name, log4j.Level.INFO, True))
    every = configuration.getLoggers()
    return [every[key] for key in every if f"{key}.".startswith(f"{name}.")]


def become(application, arguments, digest):
    """Run the job as spark-submit would: as __main__, with its folder on the path.

    A job that its task has put into a storage has a digest: another content of it does not run.
    """
    content = content_of(application)
    if digest and hashlib.sha256(content).hexdigest() != digest:
        stop(f"{application} is not what its task has written")
    path = local_path(application)
    sys.argv[:] = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):  # -P: there is no folder of the script
        sys.path[0] = os.path.dirname(os.path.abspath(path))
    runner = sys.modules["airflow_occ_runner"] = types.ModuleType("airflow_occ_runner")
    vars(runner).update(report=report, EXIT_UNPROTECTED=EXIT_UNPROTECTED)  # for run_sql.py
    job = types.ModuleType("__main__")
    vars(job).update(__builtins__=builtins, __file__=path, __cached__=None)
    sys.modules["__main__"] = job
    # The job's own statements decide how it is compiled: dont_inherit leaves ours out.
    exec(compile(content, path, "exec", dont_inherit=True), vars(job))


def folder_of(arguments):
    """Return the folder that the arguments name; None if there is none."""
    for number, argument in enumerate(arguments):
        name, is_joined, value = argument.partition("=")
        if name == NAMED_FOLDER:
            return value if is_joined else next(iter(arguments[number + 1 :]), None)
    return arguments[0] if len(arguments) == 1 else None


def start(arguments):
    """Run the job of the folder that the arguments name."""
    folder = folder_of(arguments)
    if folder is None:
        sys.exit("The folder of an attempt is needed, as the only argument or after " + NAMED_FOLDER)
    return main(folder)


if __name__ == "__main__":
    sys.exit(start(sys.argv[1:]))
