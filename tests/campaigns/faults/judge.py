"""The rule: a correct result, or a clear error and a usable checkpoint.

A case is played to its end: whatever stops the run, it is resumed, or what its error
message asks for is done, until there is a result. That result must be the one of an
uninterrupted run in one process, bit for bit. A job that launch/local watches must
name the rank with the fault.
"""

import contextlib
import io
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import dadmm.run
from dadmm.runs.row_files import iteration, merged
from dadmm.solver.checkpoint import complete
from tests.campaigns.faults.cases import Case, Fault, draw_faults
from tests.campaigns.faults.jobs import GRACE, Ended, Play, sweep
from tests.support.runs import SINCE_RESUME, differences, summary_of

SURVIVED, CLEAR, UNCLEAR = "survived", "clear error", "unclear error"
HANG, WRONG, LOST = "hang", "wrong result", "data lost"
FAILURES = (UNCLEAR, HANG, WRONG, LOST)
OUTCOMES = (SURVIVED, CLEAR, *FAILURES)
MISSED = "missed"  # the fault found nobody; such a case counts for nothing
STARTS = 12  # of one case at most
SUMMARY = ("iterations", "converged", "messages", "bytes", "n_nodes", "reason")


class Fall(Exception):
    """A breach of the rule: its outcome, and what was seen."""


class Judge:
    """Plays a case from its first start to its verdict."""

    def __init__(self, play: Play) -> None:
        self.play, self.case, self.run = play, play.case, play.run
        self.story: list[str] = []
        self.struck = self.starts = 0  # faults that hit; starts of the run
        self.refused = False
        self.newest = -1  # complete checkpoint that was seen
        self.hurt: Fault | None = None  # whose damage to files is not undone

    def verdict(self) -> dict[str, Any]:
        """Return what came of the case; ``story`` tells it start by start."""
        try:
            with self.play.prepared():
                lost = self.case.kind == "loss"
                outcome = self.judge_loss() if lost else self.judge_run()
        except Fall as fall:
            outcome, seen = fall.args
            self.story.append(seen)
        counts = {"struck": self.struck, "starts": self.starts}
        return {"outcome": outcome, "story": " | ".join(self.story), **counts}

    def complete(self) -> list[int]:
        """Return the iterations of which there are checkpoints of all nodes."""
        return complete(self.run, self.case.nodes)

    def judge_run(self) -> str:
        """Start the run until it has a result, and compare this with the whole run."""
        whole = self.play.folder / "whole"
        reference(self.case, whole)
        faults, done, resume = draw_faults(self.case), False, False
        while not done:
            if self.starts == STARTS:
                raise Fall(UNCLEAR, f"no result after {STARTS} starts")
            fault = faults.pop(0) if faults else Fault()
            ended, hit = self.attempt(fault, resume)
            self.struck += hit
            done, resume = self.judge(ended, fault, hit, resume)
        for file in whole.glob("*.csv"):
            complete_rows(self.run, file)
        apart = differences(whole, self.run, SUMMARY, SINCE_RESUME)
        ends = [summary_of(each)["reason"] for each in (self.run, whole)]
        if ends == ["signal", "max_iter"]:  # a signal came in the last iteration
            apart.remove("summary.json:reason")
        if apart:
            raise Fall(WRONG, f"differs from the uninterrupted run in {apart}")
        if not self.struck:
            return MISSED
        return CLEAR if self.refused else SURVIVED

    def attempt(self, fault: Fault, resume: bool) -> tuple[Ended, bool]:
        """Start or resume the run; return how it ended, and whether the fault hit."""
        play, ranks, named, soon = self.play, self.case.ranks, False, ""
        struck = play.folder / "struck"  # when; the faulty rank writes it
        struck.unlink(missing_ok=True)
        self.starts += 1
        self.newest, play.early = self.newest if resume else -1, False
        if resume and self.case.nodes > ranks and not fault.plan:
            ranks += self.starts % 2  # it may go on with other ranks
        more = {"DADMM_FAULTS_STRUCK": str(struck)}
        job = play.start(play.arguments(resume), fault.plan, ranks, **more)
        try:
            hit = fault.strike(play, job)
            if fault.cuts:
                struck.write_text(repr(time.time()))
            if self.case.watched and fault.says:
                said = job.comes_to(lambda: re.search(fault.says, job.err()))
                if said and struck.exists():
                    seconds = time.time() - float(struck.read_text())
                    soon = f", named after {seconds:.1f} s"
            if fault.hangs:
                named = job.comes_to(lambda: re.search(fault.hangs, job.err()))
                for _ in range(2):
                    job.signal(signal.SIGTERM)
                    job.goes_on_for(1)
            ended = job.outcome(grace=1 if fault.cuts else GRACE)
        finally:
            sweep(job.mark)
            play.repair()
        how = f"{'resumed' if resume else 'started'}, {fault.words or 'no fault'}"
        how += (f" at {fault.moment}" if fault.moment else "") + soon
        self.story.append(f"{how}: code {ended.code}; {'; '.join(ended.said)}")
        if fault.hangs and not named and ended.code:
            raise Fall(UNCLEAR, f"who hangs was not named: {ended.text[-2000:]}")
        return ended, hit or bool(ended.code and fault.words)

    def judge(
        self, ended: Ended, fault: Fault, hit: bool, resumed: bool
    ) -> tuple[bool, bool]:
        """Judge an end; return whether there is a result, and whether to resume."""
        self.check_words(ended, fault)
        summary = summary_of(self.run) if (self.run / "summary.json").exists() else None
        if summary is None and ended.code == 0:
            raise Fall(UNCLEAR, "code 0 and no summary")
        over = summary is not None and summary["iterations"] == self.case.max_iter
        watched = self.case.watched
        named = re.search(fault.says, "\n".join(ended.said))
        if ended.code and watched and not over and not named:
            raise Fall(UNCLEAR, f"{fault.says} is not named: {ended.text[-2500:]}")
        expected = hit and (fault.lethal or self.play.early or summary)
        if ended.code and not ended.said and (watched or not expected):
            raise Fall(UNCLEAR, f"code {ended.code}, no word: {ended.text[-2000:]}")
        self.refused = self.refused or bool(ended.errors)
        if over:
            return True, True
        self.check_checkpoints(summary)
        if fault.hurt is not None:
            self.story.append(fault.hurt(self.play))
            self.hurt, self.newest = fault, -1  # what is lost was taken by us
        no_room = self.case.kind == "full_disk" and fault.during is not None
        if ended.errors and not no_room:
            if resumed:
                return False, self.cure(ended.errors[0])
            if not watched:
                raise Fall(UNCLEAR, f"unexpected: {ended.errors[0]}")
        return False, not watched or bool(self.complete())

    def check_words(self, ended: Ended, fault: Fault) -> None:
        """Raise if an end breaks the rule in any case."""
        tail = ended.text[-2000:]
        for place in re.findall(r"the results are in (/\S+)", "\n".join(ended.said)):
            if not Path(place, "summary.json").exists():
                raise Fall(LOST, f"there are no results in {place}")
            shutil.rmtree(place)  # results that were rescued
        if ended.hung or (ended.left and not fault.cuts):  # which nobody can end
            raise Fall(HANG, f"still running after its time: {tail}")
        # Python's own, of a SIGINT while it imported; those of ranks may be mixed
        own = ended.text.count("KeyboardInterrupt") >= ended.text.count("Traceback")
        own = own and "SIGINT" in fault.words and ", in main\n" not in ended.text
        if "Traceback" in ended.text and not (
            own or "injected" in ended.text or "MemoryError" in ended.text
        ):
            raise Fall(UNCLEAR, f"a traceback: {tail}")
        n, outside = len(ended.errors), "outside" in str(ended.errors)
        code = 1 if self.case.kind == "loss" and outside else 2
        if n > 1 or (n and ended.code != code):
            raise Fall(UNCLEAR, f"code {ended.code}: {ended.errors}")
        if second := self.play.second:
            self.story.append(f"the second: code {second.code}; {second.said}")
            errors = [line for line in second.said if "error: " in line]
            if second.code and (second.hung or second.code != 2 or len(errors) != 1):
                raise Fall(UNCLEAR, f"the second job: {second}")
            if ended.code and not second.code:
                raise Fall(LOST, f"the second job was let in: {tail}")
            self.play.second = None

    def check_checkpoints(self, summary: dict[str, Any] | None) -> None:
        """Raise if a complete checkpoint has vanished, or a stop has left none."""
        whole = self.complete()
        newest = max(whole, default=-1)
        if newest < self.newest:
            raise Fall(LOST, f"checkpoint {self.newest} is gone; there are {whole}")
        stopped = summary is not None and summary["reason"] == "signal"
        if stopped and newest != summary["iterations"]:
            raise Fall(LOST, f"stopped at {summary['iterations']}, saved {whole}")
        self.newest = newest

    def cure(self, said: str) -> bool:
        """Do what a user does who cannot resume; return whether to try again."""
        whole, of_rows = self.complete(), "row" in said
        if self.case.kind == "corrupt":
            named = re.search(r"\S+/checkpoints/\d+(?=/)", said)
            if named is not None:
                shutil.rmtree(named[0])
                self.newest = -1
            return named is not None
        if self.hurt is not None:
            for file, data in self.hurt.kept.items():
                file.write_bytes(data)
            self.hurt = None
        elif whole and not of_rows:
            raise Fall(LOST, f"refused, with complete checkpoints {whole}: {said}")
        return bool(whole) and not of_rows

    def judge_loss(self) -> str:
        """Let ranks die; survivors go on, each part to the optimum of its own data.

        Nobody can go on if a rank dies before the first iteration or after the last
        one. Then one sentence must say so, and the run must go on from its checkpoint.
        """
        (fault,) = draw_faults(self.case)
        ended, _ = self.attempt(fault, resume=False)
        self.check_words(ended, fault)
        self.struck = 1
        if ended.code == 0:
            return self.judge_parts({int(k) for k in fault.plan})
        if not ended.said:
            raise Fall(UNCLEAR, f"code {ended.code}, no word: {ended.text[-2000:]}")
        if not (self.run / "summary.json").exists():
            again, _ = self.attempt(Fault(), resume=True)
            self.check_words(again, Fault())
            if again.code:
                if self.complete():
                    raise Fall(LOST, f"refused: {again.said}")
                return CLEAR
        self.judge_parts(set())
        return CLEAR

    def judge_parts(self, dead: set[int]) -> str:
        """Raise unless each part certifies the optimum of its own data.

        That this is true of survivors is tested in ``tests/solver/test_survivors.py``.
        """
        seen: list[int] = []
        lost: set[int] = set()
        for file in sorted(self.run.glob("**/summary.json")):
            folder, summary = file.parent, summary_of(file.parent)
            nodes = last_nodes(folder)
            seen, lost = seen + nodes, lost | {*summary["lost_nodes"]}
            self.story.append(f"nodes {nodes} are {summary['status']}")
            if summary["status"] != "certified":
                raise Fall(WRONG, f"not certified, ended by {summary['reason']}")
        missing = {*range(self.case.nodes)} - {*seen}
        # some died alone, and nobody knows
        if not lost <= missing <= dead or len({*seen}) < len(seen):
            raise Fall(LOST, f"there are results of nodes {sorted(seen)} only")
        return MISSED if dead and not lost else SURVIVED


def reference(case: Case, out: Path) -> None:
    """Run a case in this process, with nothing in its way."""
    words = f"{case.settings} --nodes {case.nodes} --no-checkpoint --quiet --out"
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        code = dadmm.run.main([*words.split(), str(out)])
    if code != 0:
        raise RuntimeError(f"{case} cannot be run at all: {said.getvalue()}")
    if summary_of(out)["reason"] == "signal":
        raise KeyboardInterrupt  # which the run took for its own


def complete_rows(run: Path, like: Path) -> None:
    """Merge rows; for want of room, a run may have left the last of them in parts."""
    file, parts = run / like.name, [*run.glob(f"parts/{like.stem}-*.csv")]
    rows = [*merged([], file)]
    if parts and (not rows or iteration(rows[-1]) < summary_of(run)["iterations"]):
        header, *_ = like.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join([header, *merged(parts, file)]))


def last_nodes(folder: Path) -> list[int]:
    """Return the nodes with a row of the last iteration."""
    file, parts = folder / "history.csv", folder.glob("parts/history-*.csv")
    # a rank may have died before rows were merged
    rows = [*merged([] if file.exists() else [*parts], file)]
    last = iteration(rows[-1])
    return sorted(int(row.split(b",")[1]) for row in rows if iteration(row) == last)
