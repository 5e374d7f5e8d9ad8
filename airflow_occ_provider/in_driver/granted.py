"""The driver's acts by its contract: it waits, keeps its life, ends itself.

``driver/contract.py`` decides; this module has the clocks, the threads and the requests. It is shipped
with the runner: it runs on Python 3.7.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, NoReturn

from airflow_occ_provider.driver.contract import (
    DRAIN_S,
    EXIT_REFUSED,
    GRANT,
    LIFE,
    LIMIT_S,
    PATIENCE_S,
    PAYLOAD,
    REPORT_S,
    REVOKED,
    DriverPace,
    End,
    Ending,
    EndingStep,
    Gate,
    Grant,
    GuardState,
    Hello,
    Leave,
    Life,
    Moment,
    Poll,
    Run,
    answer_from_bytes,
)
from airflow_occ_provider.in_driver.folder import Folder
from airflow_occ_provider.in_driver.report import Report

PAYLOAD_S = 120.0  # from the grant until the payload is read
STEP_S = 0.2  # how late a deadline or a tick may be noticed
DRAIN_STEP_S = 0.02
# Without a guard `end` proves nothing, and each second in which it is written is one for a commit.
UNGUARDED_REPORT_S = 5.0
ASKED_TO_STOP = "it was asked to stop by SIGTERM"
EXIT_ENDED = 137  # of a driver that ended itself by SIGKILL
MOST_OF_A_REASON = 500


class Admission(NamedTuple):
    """The grant of this driver, and its payload."""

    run: Run
    payload: bytes


class WaitingDriver:
    """A driver that waits for its grant.

    Either it is admitted or it leaves: the thread that takes the choice decides. A request may block
    for longer than the limit, so a thread without I/O keeps that.

    :param folder: of the attempt.
    :param details: of the driver, for people.
    :param leave: ends this process, which another thread may block, with the reason in its log.
    """

    def __init__(
        self,
        folder: Folder,
        details: Mapping[str, str],
        leave: Callable[[str], object],
        limit_s: float = LIMIT_S,
    ) -> None:
        self._folder, self._leave = folder, leave
        self._hello = Hello(secrets.token_hex(8), details=details)
        self._gate = Gate(self._hello.nonce, moment(), limit_s, is_near=not folder.is_remote)
        self._choice = threading.Lock()
        self._granted: Run | None = None
        self._problem, self._is_removed = "", False

    @property
    def nonce(self) -> str:
        """The name of this driver in its folder."""
        return self._hello.nonce

    def wait(self) -> Admission | Leave:
        """Return the grant with its payload, or why this driver is to leave."""
        threading.Thread(target=self._keep_limit, daemon=True, name="gate limit").start()
        outcome = self._outcome()
        self._take_choice()
        if isinstance(outcome, Leave) and not self._is_removed:
            self.write_left(outcome.why)
        return outcome

    def write_left(self, why: str) -> None:
        """Write into the hello why this driver leaves, if that succeeds in time."""
        hello = Hello(self.nonce, why, self._hello.details)
        within(REPORT_S, lambda: self._folder.write(hello.name, hello.to_bytes()))

    def _outcome(self) -> Admission | Leave:
        is_announced = False
        while True:
            now, grant, revoked = moment(), None, False
            try:
                if not is_announced:
                    self._folder.write(self._hello.name, self._hello.to_bytes())
                    is_announced = True
                grant, revoked, names = look(self._folder)
                # A settled attempt's folder is removed, with the file of a driver that came late.
                if self._hello.name not in names:
                    self._is_removed = True
                    return Leave("the attempt's folder was removed: it is settled")
            except Exception as error:  # noqa: BLE001 - of Java: this look shows nothing
                self._problem = shortened(error)
            step = self._gate.decide(now, grant, revoked=revoked)
            if isinstance(step, Run):
                self._granted = step
                return self._admission(step)
            if isinstance(step, Leave):
                return step
            time.sleep(step.after_s)

    def _admission(self, run: Run) -> Admission | Leave:
        """Take the payload; it was there before the grant."""
        while True:
            try:
                payload = self._folder.read(PAYLOAD)
                break
            except Exception as error:  # noqa: BLE001 - of Java
                self._problem = shortened(error)
                time.sleep(STEP_S * 5)
        if payload is None:
            return Leave("the payload is not there")
        refusal = run.refusal(payload)
        with contextlib.suppress(Exception):  # a role may not delete; then the attempt does so later
            self._folder.delete(PAYLOAD)
        return refusal or Admission(run, payload)

    def _keep_limit(self) -> None:
        while not self._choice.locked():
            step = self._step()
            if isinstance(step, Poll):
                time.sleep(min(step.after_s, 1.0))
            elif self._choice.acquire(blocking=False):
                problem = f"; the last error of the storage: {self._problem}" if self._problem else ""
                why = f"{step.why}{problem}"
                self.write_left(why)
                self._leave(why)

    def _step(self) -> Poll | Leave:
        """Return what the clock alone decides."""
        if self._granted is None:
            step = self._gate.decide(moment(), None, revoked=False)
            return Poll(STEP_S) if isinstance(step, Run) else step
        waited_s = self._granted.since.until(moment())
        return Poll(STEP_S) if waited_s < PAYLOAD_S else Leave(f"no payload within {PAYLOAD_S:g} s")

    def _take_choice(self) -> None:
        if not self._choice.acquire(blocking=False):
            wait_for_the_end()


class GrantedDriver:
    """The granted driver: its life, its watch over the folder and its end.

    :param folder: of the attempt.
    :param nonce: of this driver.
    :param life: since the grant.
    :param report: what this driver reports to its folder.
    :param say: reports a fact.
    :param kill: ends the JVM and this process at once.
    :param pace: of its ticks and looks; by default that of its life.
    """

    def __init__(
        self,
        folder: Folder,
        nonce: str,
        life: Life,
        report: Report,
        *,
        say: Callable[..., object],
        kill: Callable[[], object],
        pace: DriverPace | None = None,
    ) -> None:
        self._folder, self._nonce, self._life = folder, nonce, life
        self._report, self._say, self._kill = report, say, kill
        self._pace = pace or DriverPace.of(life.ttl_s)
        self._lock = threading.Lock()  # of the life
        self._ending = threading.Lock()  # taken once, by the thread that ends this driver
        self._guard: Any = None
        self._state: GuardState | None = None
        self._is_reported = False

    def start(self) -> None:
        """Start the ticks, the deadline and the watch."""
        self._say("granted", nonce=self._nonce)
        self._report.start()
        for target, name in ((self._keep_time, "life"), (self._watch, "watch")):
            threading.Thread(target=target, daemon=True, name=name).start()

    def guarded(self, guard: Any) -> None:
        """Have a guard on the thread that commits."""
        self._state = GuardState()
        self._guard = guard
        self._extend()

    def heed_signal(self) -> None:
        """End this driver on SIGTERM, as YARN, Kubernetes and people send it.

        Python calls a handler in the main thread, also while that waits for Java. The JVM gets a signal
        of its own, or it alone: a guard takes that.
        """
        process = os.getpid()

        def end(number: int, _frame: object) -> None:
            if os.getpid() != process:  # a fork of it, such as a worker of the job
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
                return
            threading.Thread(target=self.end, args=(ASKED_TO_STOP,), daemon=True).start()

        with contextlib.suppress(ValueError):  # the main thread of Python alone can do so
            signal.signal(signal.SIGTERM, end)

    def heed_signal_of_jvm(self) -> None:
        """End this driver on SIGTERM to its JVM, which has a guard."""
        threading.Thread(target=self._heed_jvm, daemon=True, name="signal").start()

    def _heed_jvm(self) -> None:
        with contextlib.suppress(Exception):  # of Java: the JVM is gone, or its signals are not for us
            self._guard.wait_for_signal()
            self.end(ASKED_TO_STOP)

    def finish(self, *, has_run: bool = True) -> dict[str, object]:
        """Return what ``end`` says of the commits, once the job is over.

        From then on no commit of this driver begins, if it has a guard.

        :param has_run: whether the job's first line may have run.
        """
        if not self._ending.acquire(blocking=False):
            wait_for_the_end()
        if not has_run:
            return fields_of(End())
        ending = Ending(moment())
        self._drive(ending, {EndingStep.REPORT, EndingStep.KILL})
        return fields_of(Ending.end(self._state))

    def is_over(self) -> bool:
        """Return whether the life is over: then another thread ends the driver."""
        with self._lock:
            return self._life.is_over(moment())

    def end(self, why: str) -> None:
        """End this driver: close the guard, drain, report the end, kill."""
        if not self._ending.acquire(blocking=False):
            return
        has_guard = self._state is not None
        ending = Ending(
            moment(),
            drain_s=DRAIN_S if has_guard else 0.0,
            report_s=REPORT_S if has_guard else UNGUARDED_REPORT_S,
        )
        self._drive(ending, {EndingStep.KILL}, why)
        self._kill()

    def _drive(self, ending: Ending, last: set[EndingStep], why: str = "") -> None:
        """Make the steps of the end until one of the last ones is due; no request blocks this thread."""
        is_closing = is_reporting = False
        while True:
            step = ending.decide(moment(), self._state, is_reported=self._is_reported)
            if step in last:
                return
            if step is EndingStep.CLOSE and not is_closing:
                is_closing = True
                threading.Thread(target=self._close, daemon=True, name="closing").start()
            if step is EndingStep.REPORT and not is_reporting:
                is_reporting = True
                end = fields_of(Ending.end(self._state))
                self._say("end", exit_code=EXIT_ENDED, why=why, **end)
                arguments = (ending.report_s,)
                threading.Thread(target=self._write_end, args=arguments, daemon=True).start()
            time.sleep(DRAIN_STEP_S)

    def _close(self) -> None:
        """Close the guard, and follow its state."""
        with contextlib.suppress(Exception):  # the JVM is gone
            self._guard.close()
            while True:
                self._state = GuardState(*self._guard.state())
                if self._state.is_closed and self._state.passing is None:
                    return
                time.sleep(DRAIN_STEP_S)

    def _write_end(self, limit_s: float) -> None:
        self._is_reported = self._report.close(limit_s)

    def _keep_time(self) -> None:
        """Tick, and end the driver at its deadline, whatever its requests do.

        The first tick is due at once: a commit may need an answer.
        """
        tick_at = moment().monotonic
        while not self._ending.locked():
            now = moment()
            if self.is_over():
                self.end("its lease was not extended in time")
            if now.monotonic >= tick_at:
                tick_at = now.monotonic + self._pace.tick_s
                self._tick(now)
            time.sleep(min(STEP_S, self._pace.tick_s))

    def _tick(self, now: Moment) -> None:
        """Tick: the life that an answer gives counts from before the tick is visible."""
        with self._lock:
            self._life = self._life.tick(now)
            number = max(self._life.ticks)
        self._say("tick", number=number)

    def _watch(self) -> None:
        """Look at the folder again and again: one listing, and ``life`` if that has changed."""
        answered, is_readable, begun_s = None, True, time.monotonic()
        while not self._ending.locked():
            try:
                entries = self._folder.entries()
                is_readable = True
                if REVOKED in entries:
                    self.end("the attempt was revoked")
                if LIFE in entries and entries[LIFE] != answered:
                    content = self._folder.read(LIFE)
                    answered = entries[LIFE]
                    self._answer(answer_from_bytes(content or b""))
            except Exception as error:  # noqa: BLE001 - of Java: the life ends if this lasts
                if is_readable:
                    self._say("folder_unread", reason=shortened(error))
                is_readable = False
            # Until the first answer no commit begins.
            run_s = 0.0 if self._life.awaits_answer else time.monotonic() - begun_s
            time.sleep(self._pace.pause_s(run_s))

    def _answer(self, tick: int | None) -> None:
        with self._lock:
            self._life = self._life.answer(tick, moment())
        self._extend()

    def _extend(self) -> None:
        """Tell the guard until when a commit may begin."""
        if self._guard is not None:
            with self._lock:
                life = self._life
            self._guard.extend(lambda: life.left_s(moment()), life.needed_s(), PATIENCE_S)


def moment() -> Moment:
    """Return what both clocks show."""
    return Moment(time.monotonic(), time.time())


def look(folder: Folder) -> tuple[Grant | None, bool, Collection[str]]:
    """Return the grant, whether it was revoked, read after it, and all files."""
    names = folder.entries()
    if REVOKED in names or GRANT not in names:
        return None, REVOKED in names, names
    grant = Grant.from_bytes(folder.read(GRANT) or b"")
    names = folder.entries()
    return grant, REVOKED in names, names


def fields_of(end: End) -> dict[str, object]:
    """Return the fields of the fact ``end``."""
    return {"committed": list(end.committed), "is_certain": end.is_certain}


def end_process(why: str) -> NoReturn:
    """Leave before the job's first line, whatever the main thread does."""
    say_left(why)
    os._exit(EXIT_REFUSED)


def say_left(why: str) -> None:
    """Say in the log, for people, why this driver leaves."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"This driver leaves before the job's first line: {why}.\n")
        sys.stderr.flush()


def wait_for_the_end() -> NoReturn:
    """Wait until another thread ends this process."""
    while True:
        time.sleep(60)


def within(limit_s: float, call: Callable[[], object]) -> None:
    """Make a call in a thread of its own, which is left behind if it takes longer."""

    def attempt() -> None:
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(limit_s)


def shortened(error: Exception) -> str:
    """Return the first line of an error, for people."""
    text = f"{type(error).__name__}: {getattr(error, 'java_exception', None) or error}"
    return text.partition("\n")[0][:MOST_OF_A_REASON]
