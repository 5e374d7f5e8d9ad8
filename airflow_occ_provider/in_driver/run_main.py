"""A PySpark job of this provider: calls the main of a class in the driver's JVM.

Run through ``run_job.py`` as ``run_main.py JAR CLASS ARGUMENT ...``, after that has given Hudi its
options in the same JVM. JAR may be empty. It imports the standard library and PySpark only.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import sys
import tempfile

JARS = "spark.jars"
REMOTE = re.compile(r"[a-zA-Z][\w+.-]*:")
STREAMER = "org.apache.hudi.utilities.streamer.HoodieStreamer"
STREAMERS = (STREAMER, "org.apache.hudi.utilities.deltastreamer.HoodieDeltaStreamer")
"""Hudi Streamer, and its name before Hudi 0.14."""


def main(jar, name, *arguments):
    """Call the class's main with arguments that no command line shows."""
    from pyspark import SparkContext

    jvm, gateway = SparkContext._jvm, SparkContext._gateway
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if jar:
        add(jvm, loader, jar)
    jvm.java.lang.Class.forName(name, True, loader)  # an error names a missing class
    if name in STREAMERS:
        arguments = ("--props", empty_file(), *arguments)
    words = gateway.new_array(jvm.java.lang.String, len(arguments))
    for number, argument in enumerate(arguments):
        words[number] = argument
    functools.reduce(getattr, name.split("."), jvm).main(words)


def empty_file():
    """Return the address of an empty file of properties.

    Without ``--props`` Hudi Streamer 0.15 reads a file of its own tests, which is not there
    (``HoodieStreamer.Config.getProps``).
    """
    number, path = tempfile.mkstemp(suffix=".properties")
    os.close(number)
    atexit.register(os.unlink, path)
    return f"file://{path}"


def add(jvm, loader, jar):
    """Add a jar, also a remote one, to the driver and its executors.

    ``--jars`` would replace the jars of the site, such as Hudi's own.
    """
    path = re.sub("^(file|local):(//)?", "", jar)
    path = copy_of(jvm, path) if REMOTE.match(path) else os.path.abspath(path)
    loader.addURL(jvm.java.io.File(path).toURI().toURL())
    others = jvm.java.lang.System.getProperty(JARS)  # the context to come reads it
    jvm.java.lang.System.setProperty(JARS, ",".join(filter(None, (others, path))))


def copy_of(jvm, jar):
    """Copy a remote jar to this machine, until the job ends, and return its path."""
    spark, hadoop = jvm.org.apache.spark, jvm.org.apache.hadoop.fs
    configuration = spark.deploy.SparkHadoopUtil.get().newConfiguration(spark.SparkConf())
    source = hadoop.Path(jar)
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = os.path.join(folder.name, source.getName())
    target = hadoop.Path("file://" + path)
    source.getFileSystem(configuration).copyToLocalFile(False, source, target, True)
    return path


if __name__ == "__main__":
    main(*sys.argv[1:])
