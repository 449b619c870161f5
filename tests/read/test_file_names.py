"""Names of files that are not UTF-8 are shown as text, and the files are read like any other."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

from taut.run import analyze

OPS = "rank,step,class,start_ms,duration_ms\n" + "".join(f"{r},{s},fwd,{10 * s},{5 + r}\n" for s in range(2) for r in range(2))


def test_a_folder_and_a_file_of_other_bytes(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"job-\xff")
    folder.mkdir()
    (folder / os.fsdecode(b"ops-\xfe.csv")).write_text(OPS)
    (folder / os.fsdecode(b"loss-\xfd.csv")).write_text("step,loss\n0,2.5\n")
    analysis = analyze([folder])
    assert analysis.result["job"]["name"] == "job-?"
    assert analysis.result["job"]["counts"]["files"] == 1
    assert '"job-?"' in analysis.to_json()
    assert analysis.save(tmp_path / "run").exists()


def test_a_member_of_an_archive(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "job.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, text in ((b"ops.csv", OPS), (b"broken-\xff.csv", "rank,step,class,start_ms,duration_ms\nx\n")):
            header = tarfile.TarInfo(os.fsdecode(name))
            header.size = len(text)
            tar.addfile(header, io.BytesIO(text.encode()))
    assert '"job"' in analyze([tmp_path / "job.tar"]).to_json()
