"""Logs of a training itself, as plain text: steps, checkpoints saved and loaded, errors; and the launcher's lines among them.

The wordings of Megatron, NeMo, Lightning, the Trainer of Hugging Face, DeepSpeed and torchtitan are known, and what reads
like them. Where lines name a rank, only those of the first rank are followed.
"""

from __future__ import annotations

import re
from itertools import islice

from taut.core.tables import NULL
from taut.read.contents import JobLog
from taut.read.jobs import job_words as words
from taut.read.jobs import mlperf_lines, step_lines, wrapped_lines
from taut.read.jobs.job_words import count_or_null, table
from taut.read.jobs.log_lines import NO_YEAR, Progress, time_of, year_of
from taut.read.jobs.log_sources import Sources
from taut.read.jobs.step_lines import UNITS_NS, Bar, Step, training_bars
from taut.read.jobs.torchrun import Launcher, has_launcher

# Characters of a line that are looked at.
LINE = 2000
# Lines looked at to tell a job's log from other text.
SNIFFED = 3000
# Places of a long text that are looked at, and how much of it at each.
PLACES, PLACE_BYTES = 16, 64 << 10
_JSON = re.compile(rb'\s*[\[{]\s*["{\[\]}]')
_NUMBER = r"(\d[\d,]{0,17})"
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
    r"|vocab|\bno checkpoint|will not|best[ _-]?(?:model|checkpoint)|model weights|no existing"
)
_ANEW = re.compile(
    r"start(?:ing)? from (?:random|scratch)|fresh start|will not load any checkpoint|no checkpoint (?:was )?(?:found|provided)"
    r"|unable to find latest file|training from scratch|no existing checkpoints? found"
)
_BEGUN = ("scratch", "random", "fresh start", "checkpoint", "latest file")
_VERBS = ("sav", "writ", "wrote", "stor", "load", "resum", "continu", "restart", "ready", "finaliz", "read", "starting")
_AT = re.compile(rf"(?:at|from|for)\s+(?:global[_ ]?)?(?:iteration|step)\s{{0,20}}:?\s{{0,20}}{_NUMBER}")
_MARKED = re.compile(rf"(?:iteration|step|iter)[-_ :=#]{{0,20}}{_NUMBER}")
_NAMED = re.compile(rf"(?:checkpoint|ckpt|ep\d{{1,6}}-ba)[-_]?{_NUMBER}")
_UNITS = "ms|milliseconds|s|sec|seconds|min|minutes"
_TOOK = re.compile(rf"(?:\bin|\)in|took|duration:?)\s{{0,9}}:?\s{{0,9}}([\d.]{{1,15}})\s?({_UNITS})\b")
_DONE = re.compile(
    r"training (?:is |has )?(?:been )?(?:completed?|finished|done)\b|trainer\.fit`? stopped: `?max_(?:steps|epochs)"
    r"|done training|after training is done|exiting program at iteration"
)
_ERROR = re.compile(r"^(?:\S{0,40}\s){0,3}?((?:[A-Za-z_][\w.]{0,80}\.)?[A-Z]\w{0,60}(?:Error|Exception|Interrupt)\b.{0,300})")
_CRASH = re.compile(
    r"srun: error: \S{1,200}: tasks? \S{1,80}: (?:Exited|Killed|Out|Segm|Bus|Abort|Terminated).{0,80}|Segmentation fault"
    r"|Fatal Python error.{0,100}|noticed that process rank.{0,120}|NVRM: Xid.{0,120}"
    r"|Watchdog caught collective operation timeout.{0,200}"
)
_CRASHES = ("srun: error", "Segmentation fault", "Fatal Python", "noticed that process", "NVRM: Xid", "Watchdog caught")
# What syslog, mpirun and torchrun put before a line.
_LABEL = re.compile(
    r"^(?:(?:<\d{1,3}>)?(?:\d )?(?:[A-Z][a-z]{2} {1,2}\d{1,2} [\d:.]{8,18}|\d{4}-\d\d-\d\dT\S{8,30}) \S{1,80}"
    r" (?:\S{1,80}\[\d{1,9}\]:|\S{1,80} \S{1,20} \S{1,40} -) ?|\[\d{1,4},\d{1,7}\]<std\w{1,8}>:|\[default\d{1,7}\]:)"
)
_PATH = re.compile(r"\[/\S{1,200}:\d{1,7}\] ?")
_OOM = re.compile(r"out of memory|oom[-_]kill", re.IGNORECASE)
_SLURM = re.compile(
    r"\*\*\* (?:JOB|(?P<step>STEP)) (?P<job>\d{1,12}(?:_\d{1,9})?)?\S* ON \S+ CANCELLED(?: AT \S+)?"
    r"(?: DUE TO (?P<cause>[A-Z ]+))?"
)
_SIGNALLED = re.compile(r"srun: error: .*: (?:Killed|Terminated)")
"""How srun reports tasks that Slurm ends, which is no cause."""
_KILLED = {
    "PREEMPTION": words.PREEMPTED,
    "TIME LIMIT": words.TIMED_OUT,
    "NODE FAILURE": words.NODE_FAILED,
    "TASK FAILURE": words.FAILED,
}
_JOB_NAME = re.compile(r"(?:slurm|job)[-_.]?(\d{1,12}(?:_\d{1,9})?)(?!\d)", re.IGNORECASE)
_TIMEOUT = re.compile(
    r"(?:Timeout\((ms)\)\s{0,9}=\s{0,9}|[Tt]im(?:ed|e) ?out (?:waiting|after) )(\d{1,12})\s{0,3}(ms|milliseconds|s|seconds)?"
    r"|timeout=(?:datetime\.)?timedelta\(seconds=(?:float\([^()]{0,60}\([^()]{0,60}?)?['\"]?(\d{1,9})"
)
_PER = {**UNITS_NS, "min": 6e10, "minutes": 6e10}
# Colours and cursor movements of terminals.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|\x08")
_LOGGED = re.compile(r"^.{0,200}?\{'(?:loss|train_loss)': .{0,600}'epoch': '?(\d{1,9}(?:\.\d{1,12})?)'?\}")
_SUMMARY = re.compile(r"'train_runtime': '?\d")
_TOTAL = re.compile(rf"total optimization steps\s*=\s*{_NUMBER}")
_EPOCHS = re.compile(r"num epochs\s*=\s*(\d{1,9})")
_WORLD = re.compile(
    r"using world size: (\d{1,7})\b|\bworld[ _]size['\"]?\s{0,3}[:= ]\s{0,3}(\d{1,7})\b|starting with (\d{1,7}) processes"
    r"|member: \d{1,7}/(\d{1,7})\b"
)
# What may hold one of the kinds: a look over the whole of a long text before it is read line by line.
_ANYTHING = re.compile(
    rb"(?:[Ii]ter(?:ation)?|[Ss]tep|STEP|num_updates|\[batch=)['\"]?\s{0,20}[:=#]?\s{0,20}['\"]?\[?\s{0,20}\d"
    rb"|%\|[^|\r\n]{0,300}\|\s{0,20}\d{1,15}/\d|\[\s{0,9}\d{1,9}/\s{0,9}\d{1,9}[^\r\n]{0,80}[Ll]oss|'epoch': '?\d"
)
_LITERALS = (b"iter", b"Iter", b"step", b"Step", b"STEP", b"num_updates", b"[batch=", b"%|", b"oss", b"'epoch': ")


def sniff(head: bytes) -> bool:
    """Whether this is text with lines of a launcher or of MLPerf, with a checkpoint and its step, or with several steps."""
    if b"\x00" in head or (_JSON.match(head) and not wrapped_lines.sniff(head)):
        return False
    if has_launcher(head) or mlperf_lines.MARK.search(head):
        return True
    head = step_lines.apart(wrapped_lines.plain(head))
    reader, steps, logged, announced = _Reader(Progress(), training_bars(head)), set[int](), 0, False
    for line in islice(re.split(r"[\r\n]+", head.decode("utf-8", "replace")), SNIFFED):
        line = _ESCAPES.sub("", line[:LINE]).lower()
        kind = reader.kind(line)
        logged += kind == "logged"
        announced |= step_lines.new_epoch(line) >= 0
        if kind == "step" and reader.found is not None:
            steps.add(reader.found.number)
        if (
            len(steps) > 1
            or logged > 1
            or kind == "summary"
            or (announced and kind == "step" and step_lines.is_keras(line))
            or (kind in ("saved", "loaded", "saving", "loading") and _step_of(line) >= 0)
        ):
            return True
    return False


def sniff_text(data: bytes) -> bool:
    """The same of a whole text, whose first lines are something else: a preamble may be longer than a sniff."""
    if b"\x00" in data[: 1 << 20] or _JSON.match(data):
        return False
    if has_launcher(data) or mlperf_lines.MARK.search(data):
        return True
    if not any(word in data for word in _LITERALS):
        return False
    # From the first place that could be a step, as many lines as are sniffed at, and again from the next: a few times.
    at = 0
    for _ in range(PLACES):
        found = _ANYTHING.search(data, at)
        if not found:
            return False
        begin = data.rfind(b"\n", 0, found.start()) + 1
        if sniff(bytes(data[begin : begin + PLACE_BYTES])):
            return True
        at = begin + PLACE_BYTES
    return False


class _Reader:
    """Follows the lines of a training."""

    def __init__(self, progress: Progress, bars: frozenset[Bar]) -> None:
        self.progress, self.bars = progress, bars
        self.sources = Sources()
        self.epoch = self.in_epoch = NULL
        self.before = 0
        self.first_of_epoch = NULL
        """Steps of finished epochs, where steps are counted anew in each."""
        self.found: Step | None = None
        self.fraction = -1.0
        """The last epoch that the Trainer of Hugging Face printed, with its fraction."""
        self.total = self.epochs = NULL
        """Steps and epochs that it announced."""
        self.first_ns = NULL
        """Length of the first step of an attempt, as long as it is not known how many steps its line stands for."""
        self.has_date = False
        self.slurm_job = ""

    def kind(self, line: str) -> str:
        """What a line (in lower case) is about; empty if nothing."""
        # Plain substrings first: most lines hold none of them, and a look costs a tenth of a search.
        if any(map(line.__contains__, _BEGUN)) and _ANEW.search(line):
            return "anew"
        if any(map(line.__contains__, _VERBS)) and _OBJECT.search(line) and not _NOT.search(line):
            for kind, pattern in (("loaded", _LOADED), ("loading", _LOADING), ("saved", _SAVED), ("saving", _SAVING)):
                if pattern.search(line):
                    return kind
        if ("training" in line or "trainer" in line or "exiting" in line) and _DONE.search(line):
            return "done"
        if "'train_runtime':" in line and _SUMMARY.search(line):
            return "summary"
        if "'epoch':" in line and _LOGGED.match(line):
            return "logged"
        self.found = step_lines.find(line, self.bars)
        return "step" if self.found is not None else ""

    def read(self, line: str, has_date: bool) -> None:
        """One line."""
        lower = line.lower()
        self.has_date = has_date
        kind = self.kind(lower)
        if kind and self.sources.is_followed(kind, line, self.progress.now_ns):
            self._event(kind, lower)
        elif not kind:
            self._announced(lower)
            self._error(line)

    def _announced(self, line: str) -> None:
        """What a line says of the steps to come."""
        if "total optimization steps" in line and (found := _TOTAL.search(line)):
            self.total = step_lines.whole(found[1])
        elif "world" in line or "processes" in line or "member: " in line:
            self._sized(line)
        elif "num epochs" in line and (found := _EPOCHS.search(line)):
            self.epochs = int(found[1])
        elif (epoch := step_lines.new_epoch(line)) >= 0:
            self.progress.counted_ns = NULL
            if epoch > self.epoch >= 0:
                self.before += self.in_epoch
                self.in_epoch = 0
            elif epoch < self.epoch:
                self.before = self.in_epoch = 0
            self.epoch = epoch

    def _sized(self, line: str) -> None:
        """How many take part; one accelerator each where Megatron says so, or the accelerator is named."""
        found = _WORLD.search(line)
        if found and (found[1] or self.progress.tasks < 0):
            self.progress.tasks = count_or_null(next(part for part in found.groups() if part))
            self.progress.unit = "accelerator" if found[1] or "nvidia" in line else "task"

    def _event(self, kind: str, line: str) -> None:
        progress = self.progress
        if kind == "step":
            self._step(line)
        elif kind == "logged":
            self._logged(line)
        elif kind == "anew":
            progress.load(0, NULL, done=True)
        elif kind in ("done", "summary"):
            if kind == "summary" and not self.has_date:
                self._pass_since(line)
            progress.sign_of_life()
            progress.current.outcome = words.COMPLETED
        elif kind in ("saved", "saving"):
            progress.save(_step_of(line), _took(line), done=kind == "saved")
        else:
            progress.load(_step_of(line), _took(line), done=kind == "loaded")

    def _step(self, line: str) -> None:
        assert self.found is not None
        step = self._global(self.found)
        if not self.has_date:
            self._tick(line, step)
        self.progress.step(step.number, step.total)

    def _logged(self, line: str) -> None:
        """A line of the Trainer of Hugging Face: it has an epoch with a fraction, and no step."""
        found = _LOGGED.match(line)
        assert found is not None
        progress, epoch = self.progress, float(found[1])
        if self.total > 0 and self.epochs > 0 and not self.bars:
            progress.step(round(epoch / self.epochs * self.total), self.total)
        elif not self.bars:
            if not progress.current.over and epoch < self.fraction:
                progress.restart(progress.after_ns)
            progress.sign_of_life()
            progress.error = progress.why = ""
        self.fraction = epoch

    def _global(self, step: Step) -> Step:
        """The step with its number over all epochs."""
        if step.is_global or (step.epoch < 0 and self.epoch < 0):
            return step
        number, epoch = step.number, step.epoch if step.epoch >= 0 else self.epoch
        if epoch < self.epoch or (epoch == self.epoch and number < self.in_epoch):
            self.before = 0 if epoch <= 1 else self.before  # went back
        elif epoch > self.epoch >= 0 and number < self.in_epoch:
            self.before += self.in_epoch + (self.first_of_epoch == 0 and step.clock_ns < 0)
        if epoch != self.epoch or number < self.in_epoch:
            self.first_of_epoch = number
        self.epoch, self.in_epoch = epoch, number
        return step._replace(number=self.before + number)

    def _pass_since(self, line: str) -> bool:
        since = step_lines.since_start_ns(line)
        if since >= 0:
            self.progress.count(since)
        return since >= 0

    def _tick(self, line: str, step: Step) -> None:
        """Where a line has no date, time advances by the clock that it shows, or by the length of the steps since the last."""
        progress, one = self.progress, self.progress.current
        if step.clock_ns >= 0:
            progress.count(step.clock_ns)
            return
        if self._pass_since(line):
            return
        took = step_lines.step_ns(line)
        if took < 0:
            return
        ahead = step.number - one.last_step if step.number > one.last_step >= 0 and not one.over else 1
        if one.last_step < 0 or one.over or step.number < one.last_step:
            self.first_ns = took
            known = 0 <= one.resumed_step < step.number and not one.over
            ahead, self.first_ns = (step.number - one.resumed_step, NULL) if known else (1, took)
        elif self.first_ns >= 0:
            # The first line stood for as many steps as lie between it and this one.
            missing = min(ahead, max(one.last_step, 1)) - 1
            progress.tick(self.first_ns * min(missing, step_lines.MOST_STEPS))
            one.first_step_ns = one.last_step_ns = progress.now_ns
            self.first_ns = NULL
        progress.tick(took * min(ahead, step_lines.MOST_STEPS))

    def _error(self, line: str) -> None:
        killed = _SLURM.search(line) if "CANCELLED" in line else None
        if killed:
            self._killed(killed)
            return
        text = _error_text(line)
        if text or "oom-kill" in line or "oom_kill" in line:
            oom = _OOM.search(line) is not None
            self.progress.fail(words.OUT_OF_MEMORY if oom else words.FAILED, _PATH.sub("", text or line))

    def _killed(self, said: re.Match[str]) -> None:
        """Slurm ends the job, or a step of it."""
        self.slurm_job = said["job"] or self.slurm_job
        error = self.progress.error
        if said["step"] and not said["cause"] and error and not _SIGNALLED.match(error):
            return  # srun ends a step after one of its tasks failed: that is the cause
        why = _KILLED.get((said["cause"] or "").strip(), words.CANCELLED)
        self.progress.fail(why, said[0].strip("* "))
        self.progress.why = why


def _error_text(line: str) -> str:
    """The exception or the crash that a line tells; empty if none."""
    if "Error" in line or "Exception" in line or "Interrupt" in line:
        found = _ERROR.match(_LABEL.sub("", line, 1))
        if found and found[1]:
            return found[1]
    crash = _CRASH.search(line) if any(map(line.__contains__, _CRASHES)) else None
    return crash[0] if crash else ""


def _step_of(line: str) -> int:
    """The step that a line about a checkpoint names."""
    for pattern in (_AT, _MARKED, _NAMED):
        found = pattern.search(line)
        if found:
            return step_lines.whole(found[1])
    return NULL


def _took(line: str) -> int:
    found = _TOOK.search(line)
    return NULL if not found else round(step_lines.number(found[1], 1e6) * _PER[found[2]])


def _limit(line: str) -> int:
    """How long something was allowed to take that timed out; NULL if the line does not say."""
    found = _TIMEOUT.search(line)
    if not found:
        return NULL
    if found[4]:
        return int(found[4]) * words.SECOND
    return round(int(found[2]) * _PER[found[1] or found[3]]) if found[1] or found[3] else NULL


def load(data: bytes, label: str) -> JobLog | None:
    """The attempts of one log; None if it shows none."""
    data = step_lines.apart(wrapped_lines.plain(data))
    year = year_of(data)
    progress, zoned = Progress(), False
    launcher, benchmark, reader = Launcher(progress), mlperf_lines.Benchmark(progress), _Reader(progress, training_bars(data))
    for line in re.split(r"[\r\n]+", bytes(data).decode("utf-8", "replace")):
        if not line or line.startswith("-- "):
            continue  # what journalctl says of the journal
        line = line[:LINE]
        if "\x1b" in line or "\x08" in line:
            line = _ESCAPES.sub("", line)
        if ":::ML" in line:
            zoned = True
            if reader.sources.is_followed("mlperf", line, progress.now_ns):
                benchmark.read(line)
            continue
        at, has_zone = time_of(line, year or NO_YEAR)
        zoned |= has_zone
        progress.pass_time(at)
        if not launcher.read(line):
            reader.read(line, at >= 0)
        if "imeout" in line or "imed out" in line:
            progress.allowed_ns = max(progress.allowed_ns, _limit(line))
    if not progress.useful and not (progress.dated and has_launcher(data)):
        return None  # a program that is about these things, and no log
    benchmark.finish()
    progress.finish(progress.now_ns)
    found = table(progress.columns(job_of(label, reader.slurm_job)), label)
    return JobLog(
        label,
        found,
        inside=True,
        zoneless=progress.dated and not zoned,
        yearless=progress.dated and year is None and not zoned,
        partial=[*_notes(label, progress), *benchmark.notes(label)],
    )


def _notes(label: str, progress: Progress) -> list[str]:
    if progress.undated_start:
        return [f"{label}: no date before its first steps: it is taken to have begun with them, and to be as long as they are"]
    if progress.dated:
        return []
    if progress.now_ns >= 0:
        return [f"{label} has no dates: its attempts are taken to be as long as their steps; pauses between them are not known"]
    return [f"{label} has no dates: how long its attempts took is not known"]


def job_of(label: str, known: str = "") -> str:
    """The job in a file's name: the number in ``slurm-1234.out``, else what the log says, else the name without its ending."""
    base = re.split(r"[/\\:]", label)[-1].removesuffix(".gz")
    found = _JOB_NAME.search(base)
    return found[1] if found else known or (re.sub(r"\.(?:log|out|err|txt|stdout|stderr)$", "", base) or "job")[:64]
