"""What a line of a training says of its progress: the step, of how many, in which epoch, and how long steps took.

Lines are given in lower case. Known are numbers behind a word (``iteration 10/ 1000``, ``step:5``, ``[batch=3/100]``), numbers
in brackets behind an epoch (``epoch: [0][ 10/5005]``), and progress bars (tqdm, rich, Keras), which also show a clock.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from taut.core.tables import NULL
from taut.read.jobs.job_words import count_or_null

_NUMBER = r"(\d[\d,]{0,17})"
_GAP = r"\s{0,20}"
_OF = rf"(?:{_GAP}(?:/|of\s){_GAP}{_NUMBER})?"
_WORD = re.compile(
    r"(global[_ ]?step|num_updates|iteration|iter|step|batch(?:_idx)?)(?=[\s:=#\['\"])"
    rf"['\"]?{_GAP}[:=#]?{_GAP}['\"]?\[?{_GAP}{_NUMBER}{_OF}"
)
_GLOBAL = re.compile(rf"(global[_ ]?step|num_updates)['\"]?{_GAP}[:=#]?{_GAP}['\"]?\[?{_GAP}{_NUMBER}{_OF}")
_BRACKETS = re.compile(
    r"\b(?:epoch|iter|train)(?:\(train\))?:?\s{0,9}(?:epoch:?\s{0,9})?(\d{1,9})?\s{0,9}"
    rf"\[(?:{_GAP}(\d{{1,9}})(?:/\d{{1,9}})?\]\s{{0,9}}\[)?{_GAP}{_NUMBER}/{_GAP}{_NUMBER}"
)
_DLL = re.compile(r"^.{0,60}?\bdlll? .{0,160}?(?:- \(|\"step\": \[)(\d{1,9}), {0,2}(\d{1,15})[,)\]]")
_CLOCK = r"((?:\d{1,6}:)?\d{1,3}:\d\d)"
_TQDM = re.compile(rf"^(.{{0,200}}?)\d{{1,3}}%\|[^|\r\n]{{0,300}}\|\s{{0,20}}(\d{{1,15}})/(\d{{1,15}})\s\[{_CLOCK}<")
_RICH = re.compile(rf"^(.{{0,200}}?)[━╸╺]{{1,200}}\s{{0,9}}(\d{{1,15}})/(\d{{1,15}})\s{{1,9}}{_CLOCK}\s•")
_KERAS = re.compile(
    r"^\s{0,9}(\d{1,15})/(\d{1,15}) (?:(?:\[[=>.]{5,60}\]|[━╸╺]{5,60})(?: - |\s)?|- (?=\d{1,9}s ))(?:(\d{1,9})s )?"
)
_TUNE = re.compile(r"(\d{1,9})\|(\d{1,15})\|loss")
"""What torchtune writes before its bar: the epoch, and the step over all epochs."""
_TELLS = (
    "loss", "elapsed", "lr:", "lr=", "lr ", "learning", "samples", "tokens", "tps", "gnorm", "grad norm", "grad_norm", "it/s",
    "s/it", "throughput", "mfu", "timing", "tflop",
)  # fmt: skip
"""What a line says of a step that was made."""
_DOUBTS = ("eval", "val", "test", "infer", "warm", "predict", "step =", "steps =", "step=", "steps=")
_OTHER = re.compile(
    r"\beval\w*|\bvalid\w*|\bval\b|\btest\w*|\binfer\w*|\bwarm-?up\b|\bpredict\w*"
    r"|\bsteps?\s*=\s*[\d,]+$"
)
_BUILD = re.compile(r"step \d{1,4}/\d{1,4} : ")
_TRAINS = re.compile(r"train(?:ing)?[ _/:]{0,3}loss|loss[ _/:]{0,3}train")
_EPOCH = re.compile(r"\bepoch['\"]?\s{0,9}[:=#]?\s{0,9}\[?(\d{1,9})(?![\d.])")
_NEW_EPOCH = re.compile(r"^\s{0,9}epoch (\d{1,9})/\d{1,9}\s{0,9}$")
_MEGATRON = re.compile(r"elapsed time per iteration \((ms|s)\):\s{0,20}(\d[\d.]{0,15})()()")
_PER_STEP = re.compile(
    r"(?:elapsed[ _]time[ _]per[ _]iteration|iter(?:ation)?[ _]time|step[ _]time|train_step_timing in|timing_s/step"
    r"|seconds|[,|\t ] {0,3}time)"
    r"[ _]?\(?(ms|s)?\)?\s{0,9}[:= ]\s{0,9}(\d[\d.]{0,15})(k?)(?![\d:])\s?(ms|s|sec|seconds|milliseconds)?\b"
)
_NOT_OF_A_STEP = ("wall", "total", "elapsed", "train", "data", "run", "eta", "fetch")
"""Words before ``time`` that make it another time."""
_PLAIN_MS = re.compile(r"\| {0,9}(\d[\d.]{0,15}) ms \||\b(\d[\d.]{0,15}) ?ms/(?:step|iter|batch)")
_SINCE = re.compile(
    r"\b(?:train_time|train_runtime|time_elapsed|train_wall|wall)['\"]?\s{0,9}[:=]\s{0,9}['\"]?(\d[\d.]{0,15})\s?(ms|s)?\b"
)
_CLOCKS = ("train_time", "train_runtime", "time_elapsed", "wall")
_NO_TRAINING = re.compile(
    r"eval|valid|\bval\b|test|infer|predict|map|load|download|token|generat|shard|fetch|filter|process|sav|pack|writ|sanity"
    r"|extract|compil|captur|convert|upload|copy|read|split|group|flatten|format|sampl"
)
_BAR_BYTES = re.compile(
    rb"(?:^|[\r\n])([^\r\n]{0,200}?)\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,20}(\d{1,15})/(\d{1,15})\s\[((?:\d{1,6}:)?\d{1,3}:\d\d)<([^\r\n]{0,300})"
)
_BAR_END = re.compile(rb"(\d(?:it|s)/(?:s|it)[^\]\r\n]{0,300}\]|\?it/s\])(?=[^\r\n])")
_DIGITS = re.compile(r"\d+")
UNITS_NS = {"ms": 1e6, "milliseconds": 1e6, "s": 1e9, "sec": 1e9, "seconds": 1e9}
# A bar that runs for this share of the longest, and only once, is one of a training.
LONG = 0.25
# A number of steps beyond which lengths are no more summed.
MOST_STEPS = 1 << 20


def apart(data: bytes) -> bytes:
    """Text with a line end behind every progress bar: where carriage returns were lost, bars and other lines stand in one."""
    return _BAR_END.sub(rb"\1\n", data) if b"%|" in data else data


class Step(NamedTuple):
    """One line; NULL where it does not say."""

    number: int
    total: int = NULL
    epoch: int = NULL
    is_global: bool = False
    """Whether steps are counted over all epochs, whatever the epoch."""
    clock_ns: int = NULL
    """What the clock of a progress bar shows."""


class Bar(NamedTuple):
    """A progress bar: what stands before it, with ``#`` for digits, and how much there is to do."""

    before: str
    total: int

    def is_training(self) -> bool:
        """Whether its description does not say that it is about something else."""
        return _NO_TRAINING.search(self.before) is None


def training_bars(data: bytes) -> frozenset[Bar]:
    """The bars of the training among all bars of a log.

    The first is one that shows a loss, else the one that runs longest. Others are of further trainings: what describes them is
    the same, or they run once and for long, whereas those of evaluations come again and again.
    """
    if b"%|" not in data:
        return frozenset()
    seen: dict[Bar, tuple[bool, int]] = {}
    last: dict[Bar, int] = {}
    passes: Counter[Bar] = Counter()
    for found in _BAR_BYTES.finditer(data):
        bar = Bar(_described(found[1].decode("utf-8", "replace").lower()), int(found[3]))
        seen[bar] = max(seen.get(bar, (False, 0)), (b"loss" in found[5], clock_ns(found[4].decode())))
        passes[bar] += int(found[2]) < last.get(bar, 1 << 60)
        last[bar] = int(found[2])
    bars = [bar for bar in seen if bar.is_training()]
    if not bars:
        return frozenset([Bar("", NULL)])
    best = max(bars, key=lambda bar: (*seen[bar], bar.total))
    if best.before:
        return frozenset(bar for bar in bars if bar.before == best.before)
    long = [bar for bar in bars if not bar.before and passes[bar] == 1 and seen[bar][1] >= LONG * seen[best][1]]
    return frozenset([best, *long])


def _described(before: str) -> str:
    """What describes a bar, without numbers and without times before it."""
    return _DIGITS.sub("#", before).rsplit("]", 1)[-1].strip(" :|#.-tz+")[-60:]


def clock_ns(text: str) -> int:
    """``[hours:]minutes:seconds``."""
    seconds = 0
    for part in text.split(":"):
        seconds = 60 * seconds + int(part)
    return seconds * 1_000_000_000


def whole(text: str | None) -> int:
    """Digits with commas; NULL if there are too many."""
    return count_or_null(text.replace(",", ""), 2**53) if text else NULL


def find(line: str, bars: frozenset[Bar] = frozenset()) -> Step | None:
    """The step that a line logs, ``bars`` being the progress bars of the training, if it has any; None if it logs none."""
    if "%|" in line:
        found = _TQDM.match(line)
        if found:
            return _on_bar(line, found, bars)
    if "━" in line:
        found = _RICH.match(line)
        if found:
            return None if _NO_TRAINING.search(found[1]) else _on_bar(line, found, frozenset())
    if "dll" in line and (found := _DLL.match(line)) and "loss" in line and not _is_other(line):
        return Step(int(found[2]), NULL, int(found[1]))
    if "step" in line or "iter" in line or "batch" in line or "num_updates" in line:
        worded = _worded(line)
        if worded is not None and not _is_other(line):
            return worded
    return _unworded(line) if "/" in line and "loss" in line and not _is_other(line) else None


def _worded(line: str) -> Step | None:
    """The number behind a word; one that counts over all epochs is better than another."""
    best = _GLOBAL.search(line) if "global" in line or "num_updates" in line else None
    whole_run = best is not None
    at = 0
    while best is None:
        best = _WORD.search(line, at)
        if best is None:
            return None
        at, before = best.end(1), line[best.start() - 1] if best.start() else " "
        if before.isalpha() or (best[1][0] == "b" and before in "_-"):
            best = None
    if best[1][0] == "b":
        # Of batches only a loss, or a line of Composer, tells that they are trained on.
        counted = "loss" in line or (best[3] and ("[batch=" in line or "[epoch=" in line))
    else:
        counted = best[3] or any(map(line.__contains__, _TELLS))
    if not counted:
        return None
    return Step(whole(best[2]), whole(best[3]), _epoch(line), whole_run)


def _is_other(line: str) -> bool:
    """Whether a line is about an evaluation, a rehearsal, or the build of an image."""
    if line.startswith("step ") and _BUILD.match(line):
        return True
    return any(map(line.__contains__, _DOUBTS)) and _OTHER.search(line) is not None and _TRAINS.search(line) is None


def _epoch(line: str) -> int:
    found = _EPOCH.search(line) if "epoch" in line else None
    return int(found[1]) if found else NULL


def _on_bar(line: str, found: re.Match[str], bars: frozenset[Bar]) -> Step | None:
    mine = Bar(_described(found[1]), int(found[3]))
    known = _GLOBAL.search(line) or _TUNE.search(found[1])
    if bars and known is None and mine not in bars:
        return None
    number = whole(known[2]) if known else int(found[2])
    epoch = _epoch(found[1])
    return Step(number, NULL if known or epoch >= 0 else mine.total, epoch, known is not None, clock_ns(found[4]))


def _unworded(line: str) -> Step | None:
    found = _BRACKETS.search(line)
    if found:
        epoch = found[2] or found[1]
        return Step(whole(found[3]), NULL if epoch else whole(found[4]), int(epoch) if epoch else NULL)
    found = _KERAS.match(line)
    if found:
        return Step(int(found[1]), NULL, NULL, clock_ns=int(found[3]) * 1_000_000_000 if found[3] else NULL)
    return None


def is_keras(line: str) -> bool:
    """Whether a line is the bar of Keras, which it prints once an epoch where nobody watches."""
    return "/" in line and "loss" in line and _KERAS.match(line) is not None


def new_epoch(line: str) -> int:
    """The epoch that a line of its own announces; NULL if it does not."""
    found = _NEW_EPOCH.match(line) if "epoch" in line else None
    return int(found[1]) if found else NULL


def since_start_ns(line: str) -> int:
    """How long the training ran, by a clock of its own (``train_time:56129ms``); NULL if the line does not say."""
    found = _SINCE.search(line) if any(map(line.__contains__, _CLOCKS)) else None
    return round(number(found[1], 1e9) * UNITS_NS[found[2] or "s"]) if found else NULL


def step_ns(line: str) -> int:
    """How long one step took; NULL if the line does not say."""
    found = _MEGATRON.search(line) if "elapsed time per iteration (" in line else _general(line)
    if found:
        thousand = 1000 if found[3] else 1
        return round(number(found[2], 1e9) * thousand * UNITS_NS[found[1] or found[4] or "s"])
    found = _PLAIN_MS.search(line) if "ms" in line else None
    return round(number(found[1] or found[2], 1e9) * 1e6) if found else NULL


def _general(line: str) -> re.Match[str] | None:
    if not ("time" in line or "seconds" in line or "timing" in line):
        return None
    found = _PER_STEP.search(line)
    while found is not None and line[: found.start()].endswith(_NOT_OF_A_STEP):
        found = _PER_STEP.search(line, found.end())
    return found


def number(text: str, most: float) -> float:
    """A number of digits and a point, 0 if it is none."""
    return min(float(text), most) if text.count(".") < 2 and text.strip(".") else 0.0
