"""Logs of a training itself, as plain text: steps, checkpoints saved and loaded, errors; and the launcher's lines among them.

The wordings of Megatron, NeMo, Lightning, the Trainer of Hugging Face, DeepSpeed and torchtitan are known, and what reads
like them. Where lines name a rank, only those of the first rank are followed.
"""

from __future__ import annotations

import re
from itertools import islice

from taut.core.tables import NULL
from taut.read.jobs import job_words as words
from taut.read.jobs.job_words import JobLog, count_or_null, table
from taut.read.jobs.log_lines import NO_YEAR, Progress, time_of, year_of
from taut.read.jobs.torchrun import LAUNCHER, Launcher

# Characters of a line that are looked at.
LINE = 2000
# Lines looked at to tell a job's log from other text.
SNIFFED = 3000
_JSON = re.compile(rb'\s*[\[{]\s*["{\[\]}]')
_NUMBER = r"(\d[\d,]{0,17})"
_GAP = r"\s{0,20}"
_STEP = re.compile(
    rf"(?<![a-z])(global[_ ]?step|iteration|iter|step)['\"]?{_GAP}[:=#]?{_GAP}\[?{_GAP}{_NUMBER}({_GAP}/{_GAP}\d)?"
)
_TELLS = re.compile(r"loss|elapsed|\blr\b|learning.rate|samples|tokens|\btps\b|grad|it/s|throughput|\bmfu\b|s/it|timing")
_OTHER = re.compile(r"\beval\w*|\bvalid\w*|\bval\b|\btest\w*|\binfer\w*|\bwarm-?up\b|\bsteps?\s*=\s*[\d,]+$")
_EPOCH = re.compile(r"\bepoch['\"]?\s{0,9}[:=#]?\s{0,9}\[?(\d{1,9})")
_PER_STEP = re.compile(r"elapsed time per iteration \(ms\):\s{0,20}([\d.]{1,15})")
_OBJECT = re.compile(
    r"check-?point|ckpt|snapshot|global_step\d|(?:all|model|optim\w*)[ _]states|(?:from|at) (?:global )?(?:step|iteration)\b"
)
_SAVED = re.compile(r"\b(?:saved|wrote|written|finished saving|save duration|is ready now|finalized successfully)\b")
_SAVING = re.compile(r"\b(?:saving|writing|storing)\b")
_LOADED = re.compile(r"\b(?:loaded|restored|resumed|finished loading|successfully read)\b")
_LOADING = re.compile(
    r"\b(?:loading|restoring|resuming|resume from|continuing training|continue training|restarting from"
    r"|starting from (?:global )?(?:step|iteration))\b"
)
_NOT = re.compile(
    r"will be |could not|cannot|can't|unable|failed|not found|no such|skipp|disabled|\.{4,}|shards|tokenizer|dataset|pretrained"
    r"|vocab|\bno checkpoint|will not"
)
_ANEW = re.compile(
    r"start(?:ing)? from (?:random|scratch)|fresh start|will not load any checkpoint|no checkpoint (?:was )?(?:found|provided)"
    r"|unable to find latest file|training from scratch"
)
_BEGUN = ("scratch", "random", "fresh start", "checkpoint", "latest file")
_VERBS = ("sav", "writ", "wrote", "stor", "load", "resum", "continu", "restart", "ready", "finaliz", "read", "starting")
_AT = re.compile(rf"(?:at|from|for)\s+(?:global[_ ]?)?(?:iteration|step)\s{{0,20}}:?\s{{0,20}}{_NUMBER}")
_MARKED = re.compile(rf"(?:iteration|step|iter)[-_ :=#]{{0,20}}{_NUMBER}")
_NAMED = re.compile(rf"(?:checkpoint|ckpt)[-_]{_NUMBER}")
_UNITS = "ms|milliseconds|s|sec|seconds|min|minutes"
_TOOK = re.compile(rf"(?:\bin|\)in|took|duration:?)\s{{0,9}}:?\s{{0,9}}([\d.]{{1,15}})\s?({_UNITS})\b")
_DONE = re.compile(
    r"training (?:is |has )?(?:been )?(?:completed?|finished|done)\b|trainer\.fit`? stopped: `?max_(?:steps|epochs)"
    r"|done training|after training is done|exiting program at iteration"
)
_ERROR = re.compile(r"^(?:\S{0,40}\s){0,3}?((?:[A-Za-z_][\w.]{0,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt)\b.{0,300})")
_PATH = re.compile(r"\[/\S{1,200}:\d{1,7}\] ?")
_OOM = re.compile(r"out of memory|oom-kill", re.IGNORECASE)
_SLURM = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+(?: DUE TO ([A-Z ]+))?")
_KILLED = {"PREEMPTION": words.PREEMPTED, "TIME LIMIT": words.TIMED_OUT, "NODE FAILURE": words.NODE_FAILED}
_RANK = re.compile(r"\brank\s?[:=]?\s?(\d{1,7})\b|^(\d{1,7}): ", re.IGNORECASE)
_JOB_NAME = re.compile(r"(?:slurm|job)[-_.]?(\d{1,12}(?:_\d{1,9})?)(?!\d)", re.IGNORECASE)
_TIMEOUT = re.compile(
    r"(?:Timeout\((ms)\)\s{0,9}=\s{0,9}|[Tt]im(?:ed|e) ?out (?:waiting|after) )(\d{1,12})\s{0,3}(ms|milliseconds|s|seconds)?"
    r"|timeout=(?:datetime\.)?timedelta\(seconds=(?:float\([^()]{0,60}\([^()]{0,60}?)?['\"]?(\d{1,9})"
)
_PER = {"ms": 1e6, "milliseconds": 1e6, "s": 1e9, "sec": 1e9, "seconds": 1e9, "min": 6e10, "minutes": 6e10}


def sniff(head: bytes) -> bool:
    """Whether this is text with lines of a launcher, with a checkpoint and its step, or with several steps."""
    if b"\x00" in head or _JSON.match(head):
        return False
    if LAUNCHER.search(head):
        return True
    reader, steps = _Reader(Progress()), 0
    for line in islice(head.decode("utf-8", "replace").splitlines(), SNIFFED):
        kind = reader.kind(line[:LINE].lower())
        steps += kind == "step"
        if steps > 1 or (kind in ("saved", "loaded", "saving", "loading") and _step_of(line[:LINE].lower()) >= 0):
            return True
    return False


class _Reader:
    """Follows the lines of a training."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.followed: dict[str, str] = {}
        """Of each kind of line, the rank that is followed."""
        self.epoch = self.in_epoch = NULL
        self.before = 0
        """Steps of finished epochs, where steps are counted anew in each."""
        self.clock_ns = 0

    def kind(self, line: str) -> str:
        """What a line (in lower case) is about; empty if nothing."""
        # Plain substrings first: most lines hold none of them, and a look costs a tenth of a search.
        if any(word in line for word in _BEGUN) and _ANEW.search(line):
            return "anew"
        if any(stem in line for stem in _VERBS) and _OBJECT.search(line) and not _NOT.search(line):
            for kind, pattern in (("loaded", _LOADED), ("loading", _LOADING), ("saved", _SAVED), ("saving", _SAVING)):
                if pattern.search(line):
                    return kind
        if ("training" in line or "trainer" in line or "exiting" in line) and _DONE.search(line):
            return "done"
        found = _STEP.search(line) if "step" in line or "iter" in line else None
        return "step" if found and (found[3] or _TELLS.search(line)) and not _OTHER.search(line) else ""

    def read(self, line: str) -> None:
        """One line."""
        lower = line.lower()
        kind = self.kind(lower)
        if kind and self._is_followed(kind, line):
            self._event(kind, lower)
        elif not kind:
            self._error(line)

    def _is_followed(self, kind: str, line: str) -> bool:
        """Whether the line names no rank, or the first rank that had a line of this kind."""
        found = _RANK.search(line[:200])
        rank = (found[1] or found[2]) if found else ""
        return not rank or self.followed.setdefault(kind, rank) == rank

    def _event(self, kind: str, line: str) -> None:
        progress = self.progress
        if kind == "step":
            number = self._global(line)
            self._tick(line, number)
            progress.step(number)
        elif kind == "anew":
            progress.load(0, NULL, done=True)
        elif kind == "done":
            progress.sign_of_life()
            progress.current.outcome = words.COMPLETED
        elif kind in ("saved", "saving"):
            progress.save(_step_of(line), _took(line), done=kind == "saved")
        else:
            progress.load(_step_of(line), _took(line), done=kind == "loaded")

    def _global(self, line: str) -> int:
        """The step's number over all epochs."""
        every = list(_STEP.finditer(line))
        best = next((m for m in every if m[1].startswith("global")), every[0])
        number, epoch = _whole(best[2]), _EPOCH.search(line)
        if best[1].startswith("global") or epoch is None:
            return number
        if int(epoch[1]) < self.epoch or (int(epoch[1]) == self.epoch and number < self.in_epoch):
            self.before = 0 if int(epoch[1]) == 0 else self.before  # went back
        elif int(epoch[1]) > self.epoch >= 0 and number < self.in_epoch:
            self.before += self.in_epoch + 1
        self.epoch, self.in_epoch = int(epoch[1]), number
        return self.before + number

    def _tick(self, line: str, number: int) -> None:
        """Without any date in the log, time advances by the length of a step that it prints."""
        found, progress = _PER_STEP.search(line), self.progress
        if found is None or (progress.now_ns >= 0 and self.clock_ns == 0):
            return
        steps = number - progress.current.last_step if number > progress.current.last_step >= 0 else 1
        if self.clock_ns == 0:
            progress.pass_time(1)
        self.clock_ns = min(self.clock_ns + round(_float(found[1], 1e9) * 1e6) * min(steps, 1 << 20) + 1, 2**61)
        progress.pass_time(self.clock_ns)

    def _error(self, line: str) -> None:
        killed = _SLURM.search(line) if "CANCELLED AT" in line else None
        if killed:
            why = _KILLED.get((killed[1] or "").strip(), words.CANCELLED)
            self.progress.fail(why, killed[0].strip("* "))
            self.progress.why = why
            return
        found = _ERROR.match(line) if "Error" in line or "Exception" in line or "Interrupt" in line else None
        if found or "oom-kill" in line:
            oom = _OOM.search(line) is not None
            self.progress.fail(words.OUT_OF_MEMORY if oom else words.FAILED, _PATH.sub("", found[1] if found else line))


def _whole(text: str) -> int:
    return count_or_null(text.replace(",", ""), 2**53)


def _step_of(line: str) -> int:
    """The step that a line about a checkpoint names."""
    for pattern in (_AT, _MARKED, _NAMED):
        found = pattern.search(line)
        if found:
            return _whole(found[1])
    return NULL


def _took(line: str) -> int:
    found = _TOOK.search(line)
    return NULL if not found else round(_float(found[1], 1e6) * _PER[found[2]])


def _limit(line: str) -> int:
    """How long something was allowed to take that timed out; NULL if the line does not say."""
    found = _TIMEOUT.search(line)
    if not found:
        return NULL
    if found[4]:
        return int(found[4]) * words.SECOND
    return round(int(found[2]) * _PER[found[1] or found[3]]) if found[1] or found[3] else NULL


def _float(text: str, most: float) -> float:
    """A number of digits and a point, 0 if it is none."""
    return min(float(text), most) if text.count(".") < 2 and text.strip(".") else 0.0


def load(data: bytes, label: str) -> JobLog | None:
    """The attempts of one log; None if it shows none."""
    year = year_of(data)
    progress, zoned, dated = Progress(), False, False
    launcher, reader = Launcher(progress), _Reader(progress)
    for line in re.split(r"[\r\n]+", bytes(data).decode("utf-8", "replace")):
        if not line:
            continue
        line = line[:LINE]
        at, has_zone = time_of(line, year or NO_YEAR)
        zoned |= has_zone
        dated |= at >= 0
        progress.pass_time(at)
        if not launcher.read(line):
            reader.read(line)
        if "imeout" in line or "imed out" in line:
            progress.allowed_ns = max(progress.allowed_ns, _limit(line))
    if not progress.useful and not LAUNCHER.search(data):
        return None
    progress.finish(progress.now_ns)
    found = table(progress.columns(job_of(label)), label)
    yearless = year is None and (dated or reader.clock_ns > 0)
    return JobLog(
        label,
        found,
        inside=True,
        zoneless=dated and not zoned,
        yearless=yearless,
        partial=_notes(label, dated, reader.clock_ns > 0),
    )


def _notes(label: str, dated: bool, timed: bool) -> list[str]:
    if dated:
        return []
    if timed:
        return [f"{label} has no dates: its attempts are taken to be as long as their steps; pauses between them are not known"]
    return [f"{label} has no dates: how long its attempts took is not known"]


def job_of(label: str) -> str:
    """The job in a file's name: the number in ``slurm-1234.out``, else the name without its ending."""
    base = re.split(r"[/\\:]", label)[-1].removesuffix(".gz")
    found = _JOB_NAME.search(base)
    return found[1] if found else (re.sub(r"\.(?:log|out|err|txt|stdout|stderr)$", "", base) or "job")[:64]
