"""Record the exceptions that Hudi's multi-writer classes make, with their messages.

``python -m tests.golden.record_hudi_messages``: the messages of several releases go to
``hudi_messages.txt``, one line each: the releases, the exception, the message, with ``{}`` for what is
not constant. ``tests/unit/test_hudi_messages.py`` demands that each of them is judged on purpose.
"""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from airflow_occ_provider.embedded.bundle import find_bundle, resolve_jar
from tests.golden.class_file import ClassFile, Thrown

RELEASES = ("0.15.0", "1.0.2", "1.1.1", "1.2.0", "1.2.1")
# Of these releases Maven has no bundle for Spark 3.5.
_IN_PARTS = {"1.2.1": ("hudi-client-common", "hudi-common")}
MESSAGES = Path(__file__).parent / "hudi_messages.txt"
_FOLDERS = (
    r"(?:client/transaction|client/heartbeat|client/timeline|client/clustering/update|common/conflict"
    r"|common/table/timeline|hive/transaction|aws/transaction|handlers/marker|table/marker"
    r"|table/action/(?:clean|cluster|compact|restore|rollback))/"
)
_CLASSES = (
    r"(?:Base\w*Client|SparkRDD\w*Client|BaseCommitActionExecutor|BaseSparkCommitActionExecutor"
    r"|(?:Clustering|Compaction|Cleaner|Commit|DeletePartition|Heartbeat|Marker|Timeline|Transaction)\w*Utils"
    r"|ConcurrentOperation|HoodieLockConfig|HoodieStorage|HoodieTable|HoodieTableMetaClient"
    r"|HoodieWriteConfig)(?:\$\w+)?\.class$"
)
_MULTI_WRITER = re.compile(rf"org/apache/hudi/(?:.*/)?(?:{_FOLDERS}|{_CLASSES})")
_COMPILERS = "Invalid lambda deserialization"


def messages_of(jar: Path) -> Iterator[Thrown]:
    """Yield the exceptions that the multi-writer classes of a jar make."""
    with zipfile.ZipFile(jar) as packed:
        for name in packed.namelist():
            if name.endswith(".class") and _MULTI_WRITER.search(name):
                yield from ClassFile(packed.read(name)).thrown()


def jars_of(release: str) -> list[Path]:
    """Return the jars of a release, from the cache or Maven."""
    parts = _IN_PARTS.get(release)
    if parts is None:
        return [find_bundle(release)]
    return [resolve_jar("org.apache.hudi", name, release) for name in parts]


def is_message(text: str) -> bool:
    """Whether a text has words of its own; a name or a separator alone is none."""
    return text != _COMPILERS and re.search(r"[a-z]{2,} \S*[a-z]{2,}", text) is not None


def recorded_from(jars: list[Path]) -> set[tuple[str, str]]:
    """Return exception and message of all that the jars' multi-writer classes make."""
    thrown = {made for jar in jars for made in messages_of(jar)}
    messages = {(exception, re.sub(r"%\w", "{}", " ".join(text.split()))) for exception, text in thrown}
    return {(exception, message) for exception, message in messages if is_message(message)}


def main() -> None:
    releases: dict[tuple[str, str], list[str]] = defaultdict(list)
    for release in RELEASES:
        for recorded in recorded_from(jars_of(release)):
            releases[recorded].append(release)
    lines = [
        f"{','.join(names)}\t{exception}\t{message}\n"
        for (exception, message), names in sorted(releases.items())
    ]
    MESSAGES.write_text("".join(lines))
    print(f"{MESSAGES}: {len(lines)} messages")


if __name__ == "__main__":
    main()
