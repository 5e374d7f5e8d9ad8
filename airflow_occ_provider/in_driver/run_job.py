"""Runs a user's PySpark job in a driver that has proven to protect it.

Submitted in place of the job as ``run_job.py PAYLOAD``: a JSON file with Hudi's options, the job's
path and its arguments, and the rules that no configuration of the site may break. The driver is
asked what Hudi reads of its own, given the options, and asked again, before the job's first line
runs; where something contradicts or is not as it was given, nothing runs at all. This file is
copied to machines that know nothing of the provider: it imports the standard library and PySpark
only.
"""

from __future__ import annotations

import builtins
import ctypes
import json
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


def main(payload):
    """Protect the driver, prove it, then become the job."""
    from pyspark import SparkContext

    die_with_driver()
    with open(payload, encoding="utf-8") as file:
        given = json.load(file)
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    problem = protect(jvm, given)
    if problem:
        say(f"not protected: {problem}; the job was not started")
        return EXIT_UNPROTECTED
    say(f"protected: Hudi reads all {len(given['options'])} options that it was given")
    follow(jvm)
    become(given["application"], given["arguments"])
    return 0


def die_with_driver():
    """Have Linux kill this process with the JVM that started it: alone it can do nothing."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def say(text):
    """Write a line of our own into the driver's log."""
    print(f"airflow_occ_provider: {text}", file=sys.stderr, flush=True)


def protect(jvm, given):
    """Give Hudi the options; return why it does not read them, or what takes them away, or None."""
    from pyspark import SparkConf

    hudi = jvm.org.apache.hudi.common.config.DFSPropertiesConfiguration
    try:
        own = hudi.getGlobalProps()
    except TypeError:
        return "Hudi is not on the driver's classpath (give its bundle by packages= or jars=)"
    of_site = {key: own.getProperty(key) for key in own.stringPropertyNames()}
    found = contradiction(of_site.items(), given["rules"], place_of_defaults(jvm))
    found = found or contradiction(SparkConf().getAll(), given["rules"], "Spark's own configuration")
    if found:
        return found
    kept = {key: value for key, value in of_site.items() if not key.startswith(tuple(given["without"]))}
    wanted = {**kept, **given["options"]}
    try:
        hudi.clearGlobalProps()
        for key, value in wanted.items():
            hudi.addToGlobalProps(key, value)
    except Exception as error:
        return f"this release of Hudi does not take options ({error})"
    read = hudi.getGlobalProps()
    wrong = [key for key, value in wanted.items() if read.getProperty(key) != value]
    wrong += [key for key in of_site if key not in wanted and read.getProperty(key) is not None]
    return f"Hudi does not read what was set: {', '.join(wrong)}" if wrong else None


def contradiction(options, rules, place):
    """Return which option breaks a rule, and what to do about it, or None.

    Keys and values are taken as ``hudi/writer/options.py`` takes them, where the rules are made.
    """
    for key, given in options:
        name, value = key.strip().removeprefix("spark."), " ".join(given.split())
        for rule in rules:
            if re.fullmatch(rule["keys"], name) and not re.fullmatch(rule["allowed"], value):
                return f"{place} has {key}={value}: {rule['remedy']}"
    return None


def place_of_defaults(jvm):
    """Return where Hudi found options of the site, as far as it can be seen."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.getResource("hudi-defaults.conf")
    folder = jvm.java.lang.System.getenv("HUDI_CONF_DIR")
    return found.toString() if found else f"hudi-defaults.conf of {folder or '/etc/hudi/conf'}"


def follow(jvm):
    """Keep the loggers that tell of instants and conflicts at INFO."""
    try:
        log4j = jvm.org.apache.logging.log4j
        # Each class loader has a context: with userClassPathFirst, Hudi's is not Spark's.
        for context in log4j.LogManager.getFactory().getSelector().getLoggerContexts():
            for name in FOLLOWED_LOGGERS:
                logger_of(log4j, context, name).setLevel(log4j.Level.INFO)
            context.updateLoggers()
    except Exception as error:  # another logging library: the table still tells the outcome
        say(f"instants cannot be followed in this driver's log: {error}")


def logger_of(log4j, context, name):
    """Return the configuration of a logger itself, not of one above it."""
    configuration = context.getConfiguration()
    found = configuration.getLoggerConfig(name)
    if found.getName() != name:
        found = log4j.core.config.LoggerConfig(name, log4j.Level.INFO, True)
        configuration.addLogger(name, found)
    return found


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
