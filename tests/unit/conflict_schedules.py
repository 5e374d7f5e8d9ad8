"""Random schedules of writers that respect Hudi's rule: no two conflicting writes side by side."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tests.bench.conflict.bound import conflict
from tests.bench.conflict.events import Job
from tests.unit.conflict_runs import done, lost, run_of

UNSEEN_S = 0.3  # after its request, a write does not see a rival that completes so soon


@dataclass
class Schedule:
    """The drivers of one arm; each takes the slot that is free first."""

    rng: object
    slots: int
    in_job: bool
    events: list = field(default_factory=list)
    free_s: list = field(default_factory=list)
    writes: list = field(default_factory=list)

    def __post_init__(self):
        self.free_s = [0.0] * self.slots

    def commit(self, job):
        """Run the drivers of a job, the last of which commits."""
        ready_s, number = 0.0, 1
        while (end := self.drive(job, number, ready_s)) is not None:
            ready_s, number = end + self.rng.uniform(0, 3), number + 1

    def drive(self, job, number, ready_s):
        slot = self.free_s.index(min(self.free_s))
        start_s = max(self.free_s[slot], ready_s) + self.rng.uniform(0, 0.5)
        first_s = since_s = start_s + self.rng.uniform(2, 4)
        until_s, refused = since_s + self.seconds(job), 0
        while self.in_job and self.beaten(job, since_s, until_s):
            since_s, refused = until_s, refused + 1
            until_s += self.seconds(job)
        lasts_s = until_s + self.rng.uniform(0.1, 1)
        self.free_s[slot] = lasts_s
        if self.beaten(job, since_s, until_s):
            self.events.append(lost(job.writer, number, start_s, lasts_s))
            return lasts_s
        self.writes.append((job, since_s, until_s))
        found = done(job.writer, number, start_s, lasts_s, (since_s, until_s))
        self.events.append(replace(found, refused=refused, refused_s=since_s - first_s))
        return None

    def seconds(self, job):
        return job.pause_s * self.rng.uniform(0.7, 1.5)

    def beaten(self, job, since_s, until_s):
        return any(
            conflict(job, rival) and begun_s + UNSEEN_S < until_s and since_s + UNSEEN_S < done_s
            for rival, begun_s, done_s in self.writes
        )


def round_of_runs(rng):
    """Return the runs of all arms of one round."""
    jobs = [
        Job(
            f"w{number}", tuple(rng.sample(["p0", "p1", "p2"], rng.choice([1, 1, 2]))), rng.uniform(1, 9)
        )
        for number in range(rng.randrange(2, 7))
    ]
    runs = []
    for arm, slots, in_job in (("a", 3, False), ("c", 3, True), ("d", 1, False), ("f", 3, False)):
        schedule = Schedule(rng, slots, in_job)
        for job in rng.sample(jobs, len(jobs)):
            schedule.commit(job)
        runs.append(run_of(jobs, *schedule.events, arm=arm, slots=slots))
    return runs


def rounded(run):
    """Return a run as it is recorded, with three digits."""
    fields = ("start_s", "end_s", "refused_s", "requested_s", "completed_s")
    events = []
    for one in run.events:
        values = {name: getattr(one, name) for name in fields}
        short = {name: value if value is None else round(value, 3) for name, value in values.items()}
        events.append(replace(one, **short))
    return replace(run, events=tuple(events))
