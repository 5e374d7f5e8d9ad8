"""The process that reads tables for the pages: it answers as readers in this process do."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from airflow_occ_provider.errors import ConfigurationError, NotHudiTableError, StorageStalledError
from airflow_occ_provider.ui import reader_process
from airflow_occ_provider.ui.known_tables import TableSource
from airflow_occ_provider.ui.reader_process import ReaderProcess
from airflow_occ_provider.ui.table_readers import LocalReaders
from tests.golden import HUDI_RELEASES
from tests.golden.table_archive import unpack
from tests.support.suspended import suspend

TABLES = Path(__file__).parents[1] / "golden" / "tables"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    paths = {
        release: str(unpack(TABLES / release / "early_conflict.zip", folder / release))
        for release in HUDI_RELEASES
    }
    return [TableSource(release, path, None, "") for release, path in paths.items()]


@pytest.fixture(scope="module")
def readers():
    with closing(ReaderProcess(calls=3)) as made:
        yield made


def children():
    return [
        one for one in psutil.Process().children() if reader_process.__name__ in " ".join(one.cmdline())
    ]


def shown(state):
    return state.bars, state.edges, [(one.instant, one.fate, one.verdict) for one in state.writers]


def test_it_reads_what_this_process_reads(sources, readers):
    for source in sources:
        for with_verdicts in (True, False):
            here = LocalReaders().state(source, with_verdicts=with_verdicts)
            assert shown(readers.state(source, with_verdicts=with_verdicts)) == shown(here)
        assert readers.findings(source) == LocalReaders().findings(source)
    assert len(children()) == 1


def test_threads_read_at_once(sources, readers):
    with ThreadPoolExecutor(3) as pool:
        states = list(pool.map(lambda one: readers.state(one, with_verdicts=True), sources * 5))
    assert [len(one.writers) for one in states] == [2] * 5 * len(sources)


def test_an_error_arrives_as_it_was_raised(readers, tmp_path):
    with pytest.raises(NotHudiTableError) as raised:
        readers.state(TableSource("none", str(tmp_path), None, ""), with_verdicts=True)
    with pytest.raises(NotHudiTableError) as here:
        LocalReaders().state(TableSource("none", str(tmp_path), None, ""), with_verdicts=True)
    assert vars(raised.value) == vars(here.value)
    assert str(raised.value) == str(here.value)


def test_an_error_of_this_provider_is_copied_with_its_fields():
    error = ConfigurationError("table", "is no URL", remedy="give one")
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
    assert copied.field == "table"


class OddError(Exception):
    def __init__(self, *, code):
        super().__init__(f"code {code}")


class FailingReaders:
    def findings(self, source):
        raise OddError(code=7)


def test_an_error_that_cannot_be_copied_arrives_as_its_text(sources):
    answering = reader_process._Answering(None, FailingReaders(), None)
    value, error = pickle.loads(answering._answer("findings", sources[0], {}))
    assert (value, type(error), str(error)) == (None, RuntimeError, "code 7")


def test_a_process_that_was_killed_begins_anew(readers, sources):
    readers.findings(sources[0])
    (old,) = children()
    old.kill()
    assert readers.findings(sources[0]) == LocalReaders().findings(sources[0])
    (new,) = children()
    assert new.pid != old.pid


def test_a_process_that_does_not_answer_is_ended(readers, sources, monkeypatch):
    readers.findings(sources[0])
    (old,) = children()
    suspend(old.pid)
    with monkeypatch.context() as patched:
        patched.setattr(reader_process, "_CALL_S", 0.1)
        with pytest.raises(StorageStalledError, match=sources[0].path):
            readers.findings(sources[0])
    assert not old.is_running()
    assert readers.findings(sources[0]) == LocalReaders().findings(sources[0])


def test_a_process_that_cannot_start_is_an_error(sources, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="ended twice"):
        ReaderProcess(calls=1).findings(sources[0])


def test_an_idle_process_ends_and_begins_anew(sources):
    before = set(children())
    with closing(ReaderProcess(calls=1, idle_s=0.0)) as readers:
        for _ in range(2):
            assert readers.findings(sources[0]) == LocalReaders().findings(sources[0])
            (started,) = set(children()) - before
            started.wait(PATIENCE_S)


def test_it_ends_with_the_process_that_started_it(sources):
    code = (
        f"from {reader_process.__name__} import ReaderProcess, TableSource\n"
        "readers = ReaderProcess(calls=2)\n"
        f"readers.findings(TableSource('t', {sources[0].path!r}, None, ''))\n"
        "print(readers._now.process.pid, flush=True)\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    pid = int(done.stdout.split()[-1])
    with suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(PATIENCE_S)


def test_it_gives_way_to_airflows_own_requests(readers, sources):
    readers.findings(sources[0])
    assert children()[0].nice() > os.nice(0)
