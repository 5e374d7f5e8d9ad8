"""The ways in which writers of one table are run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

IN_JOB_RETRIES = 10


@dataclass(frozen=True, slots=True)
class Arm:
    """One way.

    :param letter: by which it is named in issues and on the command line.
    :param detects_early: whether Hudi looks for rivals while it writes.
    :param in_job_retries: how often Hudi itself repeats a refused write.
    :param pool: slots of its own, if it has fewer than the machine.
    :param ours: whether the provider's operator runs it, and then how it knows what it changes.
    :param stands_by: whether the driver of the next task in the queue is started before its lease.
    :param without: what the operator is to do without, so that the others show what that gains.
    :param is_undetected: whether Hudi's own early detection is off, as in tables where it cannot be on.
    """

    letter: str
    title: str
    detects_early: bool = False
    in_job_retries: int = 0
    pool: int | None = None
    ours: Literal["", "no scopes", "learned", "scopes"] = ""
    without: Literal["", "early stop", "giving way", "hints", "preflight"] = ""
    stands_by: bool = False
    is_undetected: bool = False

    @property
    def is_scheduled(self) -> bool:
        """Whether Airflow can run it: what it is without may be patched in a writer's own process."""
        return bool(self.ours and not self.without)

    @property
    def policy(self) -> dict[str, Any]:
        """The policy of its tasks."""
        return {
            "learn_scope": self.ours == "learned",
            "standby": self.stands_by,
            **({"early_stop": "off"} if self.without == "early stop" else {}),
            **({"preflight_timeout": 0} if self.without == "preflight" else {}),
            **({"early_conflict_detection": "off"} if self.is_undetected else {}),
        }


ARMS = {
    arm.letter: arm
    for arm in (
        Arm("a", "spark-submit, OCC by hand"),
        Arm("b", "the same, early detection", detects_early=True),
        Arm("c", "the same, Hudi's own retries", in_job_retries=IN_JOB_RETRIES),
        Arm("d", "the same, a pool of one slot", pool=1),
        Arm("e", "HudiWriteOperator", ours="no scopes"),
        Arm("f", "HudiWriteOperator with scope", ours="scopes"),
        Arm("g", "HudiWriteOperator that learns it", ours="learned"),
        Arm("h", "HudiWriteOperator, no giving way", ours="no scopes", without="giving way"),
        Arm("i", "HudiWriteOperator, no hints", ours="no scopes", without="hints"),
        Arm("j", "HudiWriteOperator, no preflight", ours="no scopes", without="preflight"),
        Arm("k", "HudiWriteOperator, no early stop", ours="no scopes", without="early stop"),
        Arm("l", "HudiWriteOperator, scope, standby", ours="scopes", stands_by=True),
        Arm("m", "HudiWriteOperator, undetected", ours="no scopes", is_undetected=True),
        Arm("n", "the same, no giving way", ours="no scopes", without="giving way", is_undetected=True),
    )
}
BY_HAND = tuple(letter for letter, arm in ARMS.items() if not arm.ours)


def in_turn(letters: str, turn: int) -> str:
    """Return the order of a round's arms: A B C, then C B A, so that a slow drift hurts none."""
    return letters if turn % 2 == 0 else letters[::-1]
