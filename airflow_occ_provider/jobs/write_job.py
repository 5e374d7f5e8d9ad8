"""Runs a user's PySpark job in a driver that has proven to read our Hudi configuration.

Submitted in place of the job: ``write_job.py HUDI_DEFAULTS APPLICATION [ARGUMENT ...]``. Another
``hudi-defaults.conf`` may hide ours from Hudi without a word, so the driver is asked what it has
read before the job's first line runs; where that is not our file, nothing runs at all. This file
is copied to machines that know nothing of the provider: it imports the standard library and
PySpark only.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import re
import signal
import sys

EXIT_UNPROTECTED = 78  # EX_CONFIG
# What the attempt is followed by; these stay at INFO whatever level the job sets.
FOLLOWED_LOGGERS = (
    "org.apache.hudi.common.table.timeline",
    "org.apache.hudi.client.transaction",
    "org.apache.hudi.client.utils.TransactionUtils",
)


def main(defaults, application, *arguments):
    """Prove the protection, then become the job."""
    from pyspark import SparkContext

    die_with_driver()
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    problem = find_problem(jvm, defaults)
    if problem:
        say(f"not protected: {problem}; the job was not started")
        return EXIT_UNPROTECTED
    say(f"protected: the driver reads {defaults}")
    follow(jvm)
    become(application, arguments)
    return 0


def die_with_driver():
    """Have Linux kill this process with the JVM that started it: alone it can do nothing."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def say(text):
    """Write a line of our own into the driver's log."""
    print(f"airflow_occ_provider: {text}", file=sys.stderr, flush=True)


def find_problem(jvm, defaults):
    """Return why Hudi in this driver does not read every line of our file, or None."""
    try:
        read = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration.getGlobalProps()
    except TypeError:
        return "Hudi is not on the driver's classpath (give its bundle by packages= or jars=)"
    for key, value in expected(defaults).items():
        if read.getProperty(key) != value:
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            place = loader.getResource("hudi-defaults.conf")
            return f"Hudi reads another configuration ({place}): {key} is not what was set"
    return None


def expected(defaults):
    """Read our file as Hudi does: white space folded, split at the first '=', later lines win."""
    with open(defaults, encoding="utf-8") as lines:
        pairs = (re.sub(r"\s+", " ", line).split("=", 1) for line in lines if "=" in line)
        return {key.strip(): value.strip() for key, value in pairs}


def follow(jvm):
    """Keep the loggers that tell of instants and conflicts at INFO."""
    try:
        log4j = jvm.org.apache.logging.log4j
        for name in FOLLOWED_LOGGERS:
            log4j.core.config.Configurator.setLevel(name, log4j.Level.INFO)
    except Exception as error:  # another logging library: the table still tells the outcome
        say(f"instants cannot be followed in this driver's log: {error}")


def become(application, arguments):
    """Run the job as spark-submit would have: as __main__, with its own folder on the path."""
    path = application.removeprefix("file://").removeprefix("file:")
    sys.argv[:] = [path, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(path))
    with open(path, "rb") as source:
        code = compile(source.read(), path, "exec")
    space = sys.modules["__main__"].__dict__
    fresh = dict.fromkeys(("__doc__", "__package__", "__spec__", "__loader__", "__cached__"))
    fresh.update(__name__="__main__", __builtins__=builtins, __file__=path)
    space.clear()
    space.update(fresh)
    exec(code, space)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    if status:
        sys.exit(status)
