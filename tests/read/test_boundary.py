"""One boundary for every file, and a digest over what was read: a bad file is refused alone, the rest goes on."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

import taut
from taut.core.errors import InputRefused
from taut.ledger import Prices
from taut.read import op_table as optable
from taut.read.trace import read
from taut.run import digest

TABLE = "rank,step,class,start_ns,duration_ns\n" + "".join(
    f"{rank},{step},{name},{100 * step + start},{took + rank}\n"
    for step in range(3)
    for rank in range(2)
    for name, start, took in (("fwd", 0, 40), ("all-reduce", 45, 10))
)
Write = Callable[[str, str], Path]


@pytest.fixture
def put(tmp_path: Path) -> Write:
    def write(name: str, text: str) -> Path:
        (tmp_path / "in").mkdir(exist_ok=True)
        path = tmp_path / "in" / name
        path.write_text(text)
        return path

    return write


def test_a_stray_pickle_beside_good_traces_is_left_out(put: Write) -> None:
    good = put("ops.csv", TABLE)
    (good.parent / "stray.pkl").write_bytes(pickle.dumps({"weights": [1, 2, 3]}))
    assert len(read([good.parent]).ops) == 12


def test_an_exception_nobody_foresaw_refuses_that_file_alone(put: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes, label: str) -> taut.Trace:
        if b"bad" in data:
            raise ZeroDivisionError("nobody thought of that")
        return kept(data, label)

    kept = optable.load
    monkeypatch.delenv("TAUT_DEBUG", raising=False)
    monkeypatch.setattr(optable, "load", fail)
    good = put("ops.csv", TABLE)
    bad = put("bad.csv", TABLE.replace("fwd", "bad"))
    trace = read([good.parent])
    assert len(trace.ops) == 12
    assert any("bad.csv left out" in note and "nobody thought of that" in note for note in trace.partial)
    with pytest.raises(InputRefused, match=r"bad\.csv: unreadable .* leave it out"):
        read([bad])


def test_out_of_memory_refuses_the_file(put: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes, label: str) -> taut.Trace:
        raise MemoryError

    monkeypatch.setattr(optable, "load", fail)
    with pytest.raises(InputRefused, match="more memory than there is"):
        read([put("ops.csv", TABLE)])


def test_a_tar_cut_anywhere_is_refused_or_read_in_part(tmp_path: Path) -> None:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name in ("a.csv", "b.csv"):
            info = tarfile.TarInfo(name)
            info.size = len(TABLE)
            tar.addfile(info, io.BytesIO(TABLE.encode()))
    for cut in range(1, 3000, 97):
        path = tmp_path / "cut.tar"
        path.write_bytes(whole.getvalue()[:cut])
        with suppress(InputRefused):
            read([path])


def test_long_names_in_a_tar_are_refused(tmp_path: Path) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 512
    (tmp_path / "names.tar").write_bytes((header.tobuf(tarfile.GNU_FORMAT) + b"n" * 512) * 3000)
    with pytest.raises(InputRefused):
        read([tmp_path / "names.tar"])


def test_the_digest_does_not_depend_on_the_order_of_arguments_nor_on_strangers(put: Write) -> None:
    one, other = put("a.csv", TABLE), put("b.csv", TABLE.replace("\n0,", "\n2,").replace("\n1,", "\n3,"))
    first = read([one, other]).digest
    assert read([other, one]).digest == first
    assert read([one]).digest != first
    put("weights.bin", "a stranger")
    assert read([one.parent]).digest == first


def test_the_digest_is_over_contents_and_options_that_change_the_result(put: Write) -> None:
    one = put("a.csv", TABLE)
    trace = read([one])
    assert digest(trace, Prices()) != digest(trace, Prices(Decimal(2), "EUR"))
    put("a.csv", TABLE.replace("fwd", "bwd"))
    assert read([one]).digest != trace.digest


def through_a_pipe(path: Path, text: str) -> str:
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    try:
        return read([path]).digest
    finally:
        writer.join()
        path.unlink()


def test_a_pipe_is_read_once_and_has_a_digest_of_its_contents(tmp_path: Path) -> None:
    first = through_a_pipe(tmp_path / "pipe", TABLE)
    assert through_a_pipe(tmp_path / "pipe", TABLE) == first
    assert through_a_pipe(tmp_path / "pipe", TABLE.replace("fwd", "bwd")) != first


def test_runs_below_a_folder_are_not_read_as_its_traces(put: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put("ops.csv", TABLE).parent
    monkeypatch.chdir(folder)
    first = taut.analyze(["."])
    run = first.save()
    assert taut.analyze(["."]).digest == first.digest
    with pytest.raises(InputRefused, match="is a run folder"):
        read([run])


SCRIPT = """
import sys
import taut
analysis = taut.analyze(sys.argv[1:])
print(analysis.result["job"]["ranks"], flush=True)
"""


def test_a_script_without_a_guard_reads_in_processes(put: Write, tmp_path: Path) -> None:
    # The limit from which files are read in processes is lowered, so that the test stays small.
    (tmp_path / "script.py").write_text(
        f"from taut.read import load_inputs as l; l.PARALLEL_BYTES = 1; print('once')\n{SCRIPT}"
    )
    small = [put("c.csv", TABLE), put("d.csv", TABLE.replace("\n0,", "\n2,").replace("\n1,", "\n3,"))]
    command = [sys.executable, str(tmp_path / "script.py"), *map(str, small)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "once\n4\n", "")


def test_a_slow_pipe_is_known_by_more_than_its_first_bytes(tmp_path: Path) -> None:
    def drip() -> None:
        with (tmp_path / "pipe").open("wb", buffering=0) as out:
            for at in range(0, len(TABLE), 40):
                out.write(TABLE[at : at + 40].encode())
                time.sleep(0.001)

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=drip)
    writer.start()
    assert len(read([tmp_path / "pipe"]).ops) == 12
    writer.join()


def pax(content: bytes) -> bytes:
    header = tarfile.TarInfo("./PaxHeaders/x")
    header.type, header.size = tarfile.XHDTYPE, len(content)
    return header.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)


@pytest.mark.parametrize("content", [b"1" * 200_000, b"26 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"])
def test_headers_of_an_archive_on_which_python_spends_minutes_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "evil.tar").write_bytes(pax(content) + bytes(2048))
    (tmp_path / "ops.csv").write_text(TABLE)
    assert len(read([tmp_path]).ops) == 12
    with pytest.raises(InputRefused):
        read([tmp_path / "evil.tar"])


def test_long_names_in_a_pax_archive_are_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "good.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("ä" * 200 + "/ops.csv")
        info.size = len(TABLE)
        tar.addfile(info, io.BytesIO(TABLE.encode()))
    assert len(read([tmp_path / "good.tar"]).ops) == 12


def test_links_to_what_is_no_file_on_a_disk_are_passed_over(put: Write) -> None:
    good = put("ops.csv", TABLE)
    (good.parent / "endless.json").symlink_to("/proc/self/mounts")
    assert read([good.parent]).counts["files skipped"] == 0


def test_spans_beside_traces_are_left_out(put: Write) -> None:
    good = put("ops.csv", TABLE)
    ids = '"traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "b7ad6b7169203331"'
    span = f'{{{ids}, "name": "a", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}}'
    put("spans.json", f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{span}]}}]}}]}}')
    trace = read([good.parent])
    assert len(trace.ops) == 12
    assert any("spans.json left out" in note for note in trace.partial)
