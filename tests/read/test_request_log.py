"""Recorded requests: which columns are known, what is left out, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.core.errors import InputRefused
from taut.read import request_log as requests
from taut.read.scenario_file import load as load_scenario

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9305900,396,109
"""
EXPECTED = {"time_s": [0.0, pytest.approx(4.25)], "prompts": [374, 396], "generated": [44, 109], "cut": False}


def loaded(folder: Path, text: str | bytes, name: str = "requests.csv") -> dict[str, Any]:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return requests.load(folder / name)


@pytest.mark.parametrize(
    "text",
    [
        AZURE,
        gzip.compress(AZURE.encode()),
        AZURE.replace("00,374", "00+00:00,374").replace("00,396", "00Z,396"),
        "Timestamp,Model,Request tokens,Response tokens,Total tokens\n5,GPT-4,374,44,418\n7,a,9,0,9\n9.25,b,396,109,5\n",
        '{"timestamp": 4250, "input_length": 396, "output_length": 109, "hash_ids": [1]}\n'
        '{"timestamp": 0, "input_length": 374, "output_length": 44, "hash_ids": []}\n',
        "arrival_ms,prompt_tokens,completion_tokens\n10250,396,109\n6000,374,44\n",
    ],
)  # fmt: skip
def test_traces_of_services_are_read_in_order_of_time(tmp_path: Path, text: str | bytes) -> None:
    assert loaded(tmp_path, text) == EXPECTED


def test_a_long_file_is_cut_and_reported_as_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST", 3)
    found = loaded(tmp_path, "time_s,input_tokens,output_tokens\n" + "".join(f"{i},5,6\n" for i in range(5)))
    assert (found["time_s"], found["cut"]) == ([0, 1, 2], True)


def test_a_scenario_names_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "requests.csv").write_text(AZURE)
    (tmp_path / "s.toml").write_text('[serving]\nreplicas = 1\n[arrivals]\nprocess = "recorded"\nfile = "requests.csv"\n')
    table, _ = load_scenario(tmp_path / "s.toml")
    assert table["arrivals"] == {"process": "recorded", "file": "requests.csv", **EXPECTED}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "too few"),
        ("time,prompt_tokens\n1,2\n", "requests.csv:2: no column for generated"),
        ("time,prompt_tokens,output_tokens\n1,2,x\n", "requests.csv:2: 'x' is no number"),
        ("time,prompt_tokens,output_tokens\n1,2,3\n1,2,3\n", "same time"),
        ("time,prompt_tokens,output_tokens\nnoon,2,3\n1,2,3\n", "a time that is none"),
        ("time,prompt_tokens,output_tokens\nnan,2,3\n1,2,3\n", "a time that is none"),
        ("time,prompt_tokens,output_tokens\n2024-02-31 00:00:00,2,3\n2024-02-01 00:00:00,2,3\n", "a time that is none"),
        ('{"time": 1}\nnonsense\n', "no column"),
        (b"\x1f\x8b\x08nonsense", "cannot be"),
    ],
)
def test_refusals_name_the_place(tmp_path: Path, text: str | bytes, where: str) -> None:
    with pytest.raises(InputRefused, match=where):
        loaded(tmp_path, text)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputRefused, match="cannot be read"):
        requests.load(tmp_path / "none.csv")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300), st.integers(0, 90), st.booleans())
def test_any_bytes_load_or_are_refused(tmp_path: Path, noise: bytes, at: int, packed: bool) -> None:
    whole = AZURE.encode()[:at] + noise + AZURE.encode()[at:]
    try:
        found = loaded(tmp_path, gzip.compress(whole)[: 40 + at] if packed else whole)
    except InputRefused:
        return
    assert len(found["time_s"]) == len(found["prompts"]) == len(found["generated"]) >= 2


def test_an_hour_of_a_real_service(shared: Path) -> None:
    found = requests.load(shared / "llm-arrivals" / "AzureLLMInferenceTrace_conv.csv")
    assert len(found["time_s"]) == 19_366
    assert found["time_s"][-1] == pytest.approx(3501.72, abs=0.01)
    assert sum(found["prompts"]) / 19_366 == pytest.approx(1154.7, abs=0.1)
