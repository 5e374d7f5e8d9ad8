"""Long runs with a seed, by the question they answer: ``python -m tests.rig once --seed 7``.

Each question has programs, which may be run alone, by the names of their modules in ``tests``. What
follows ``--`` are options of one program, which then runs once: ``tests.rig faults -- --store s3``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

NIGHT = 60
"""The ``--runs`` of a night, for which the sizes below are given."""


@dataclass(frozen=True)
class Program:
    """A program of ``tests`` with its options.

    :param size: the option that says how long it runs, with its value for :data:`NIGHT`.
    :param smoke: the options instead, if ``SMOKE=1`` is set.
    """

    module: str
    options: tuple[str, ...] = ()
    size: tuple[str, int] | None = None
    seeded: bool = True
    smoke: tuple[str, ...] | None = None

    def command(self, runs: int, seed: int, *further: str) -> list[str]:
        short = self.smoke is not None and os.environ.get("SMOKE") == "1"
        options = self.smoke if short else self.options
        command = [sys.executable, "-m", f"tests.{self.module}", *options]
        if self.size:
            option, at_night = self.size
            command += [option, str(max(1, at_night * runs // NIGHT))]
        if self.seeded:
            command += ["--seed", str(seed)]
        return [*command, *further]


QUESTIONS = {
    # Does a queue grant what it should, whatever fails?
    "queue": (
        Program("model", size=("--steps", 200_000)),
        Program("model", ("--backend", "zookeeper"), ("--steps", 10_000)),
        Program("model", ("--backend", "bucket"), ("--steps", 2_000)),
        Program("model", ("--backend", "folder"), ("--steps", 2_000)),
        Program("model", ("--backend", "s3"), ("--steps", 2_000)),
        Program("handovers", size=("--runs", 1000)),
        Program("handovers", ("--backend", "folder"), ("--runs", 200)),
        Program("handovers", ("--backend", "s3"), ("--runs", 200)),
        Program("outages", size=("--times", 10), seeded=False),
        Program("outages", ("--lag",), ("--times", 10), seeded=False),
        Program("crowd", ("--mutants",)),
        Program("crowd", size=("--seconds", 600)),
        Program("crowd", ("--postgres",), ("--seconds", 600)),
    ),
    # Has each run one commit, and are rows, reads and DAG runs neither lost nor doubled, whatever fails?
    "once": (
        Program("faults", size=("--runs", 60)),
        Program("faults.contended", size=("--runs", 60)),
        Program("faults.yarn", size=("--runs", 60)),
        Program("faults.yarn", ("--only", "unrecorded_task"), ("--runs", 20)),
        Program("races", ("--kinds", "keys", "increments", "merge"), ("--runs", 50)),
        Program("races", ("--kinds", "scopes", "delete"), ("--runs", 100)),
        Program("races.places", size=("--runs", 50)),
        Program("mixed", ("--fleet", "0.15.0+1.0.2"), ("--runs", 30)),
        Program("mixed", ("--fleet", "1.0.2+1.2.0"), ("--runs", 30)),
        Program("mixed", ("--fleet", "java"), ("--runs", 30)),
        Program("backfill", ("--days", "60"), seeded=False),
        Program("stopped", size=("--runs", 60)),
        Program("stalls", ("--seconds", "180"), seeded=False),
        Program("faulty_s3", size=("--runs", 12)),
        Program("table_services", seeded=False),
        Program("incremental", size=("--runs", 50)),
        Program("commit_runs", size=("--commits", 200)),
    ),
    # Is it true what this package says of Hudi and of jobs, and what its pages show?
    "truth": (
        Program("differential", size=("--pairs", 2000)),
        Program("early_stop", size=("--races", 500)),
        Program("corpus", ("--page",), seeded=False, smoke=("--smoke",)),
        Program("pages", ("--manager", "fab"), seeded=False),
        Program("pages", ("--manager", "simple"), seeded=False),
        Program("pages.outages", seeded=False),
    ),
    # What does it cost?
    "cost": (
        Program("bench.timeline", seeded=False),
        Program("bench.imports", seeded=False),
        Program("bench.leases", seeded=False),
        Program("bench.requests", seeded=False),
        Program("bench.requests", ("--store", "dynamodb"), seeded=False),
        Program("bench.triggers", seeded=False),
        Program("bench.commits", seeded=False),
        Program("bench.remote", seeded=False),
        Program("bench.driver_requests", seeded=False),
        Program("bench.printing", seeded=False),
        Program("bench.overhead", seeded=False),
        Program("bench.pages", seeded=False),
        Program("bench.conflict", smoke=("--smoke",)),
        Program("early_stop.delay", size=("--runs", 20)),
        Program("write_cost", seeded=False),
    ),
}
PROGRAMS = tuple(program for programs in QUESTIONS.values() for program in programs)


def programs_of(name: str) -> Sequence[Program]:
    """Return the programs of a question, or one module with each of its options."""
    programs = QUESTIONS.get(name) or [program for program in PROGRAMS if program.module == name]
    if not programs:
        names = ", ".join((*QUESTIONS, *dict.fromkeys(program.module for program in PROGRAMS)))
        raise SystemExit(f"no rig is named {name!r}. There are: {names}")
    return programs


def commands(names: Sequence[str], runs: int, seed: int, further: Sequence[str]) -> list[list[str]]:
    """Return what to run, in order."""
    if not further:
        return [program.command(runs, seed) for name in names for program in programs_of(name)]
    if len(names) > 1 or names[0] in QUESTIONS:
        raise SystemExit("each program has options of its own: name one program")
    return [programs_of(names[0])[0].command(runs, seed, *further)]


def main() -> int:
    """Run all, whether one fails or not; return 1 if one did."""
    parser = argparse.ArgumentParser(prog="python -m tests.rig", description=__doc__)
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"{', '.join(QUESTIONS)}, or a program")
    parser.add_argument("--runs", type=int, default=NIGHT, help="60 is a night; 6 is a tenth of it")
    parser.add_argument("--seed", type=int, default=7)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments = parser.parse_args(sys.argv[1:end])
    failed = []
    for command in commands(arguments.names, arguments.runs, arguments.seed, sys.argv[end + 1 :]):
        words = " ".join(command[1:])
        print(f"== {words}", flush=True)
        began = time.monotonic()
        code = subprocess.run(command, check=False).returncode
        print(f"== exit code {code} after {time.monotonic() - began:.0f} s: {words}", flush=True)
        if code:
            failed.append(words)
    print(*(f"failed: {words}" for words in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
