"""Gzip inflated by ISA-L and by zlib: the same bytes, and the same refusals."""

from __future__ import annotations

import gzip
import io
import zlib

import pytest

from taut.core.errors import InputRefused, TooLarge
from taut.read import files, inflate

TEXT = b'{"name": "gemm", "ts": 12.5}, ' * 9_000
LIBRARIES = ["installed", "zlib"]


@pytest.fixture(params=LIBRARIES, autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "zlib":
        monkeypatch.setattr(files, "inflater", lambda: zlib.decompressobj(wbits=inflate.GZIP))
        monkeypatch.setattr(files, "Damaged", zlib.error)


def inflated(data: bytes, room: int = files.CHUNK_BYTES) -> bytes:
    stream, buffer, found = files.Inflating(io.BytesIO(data), "rank0.json.gz"), bytearray(room), bytearray()
    while size := stream.readinto(buffer):
        found += buffer[:size]
    return bytes(found)


@pytest.mark.parametrize("room", [1, 7, len(TEXT) - 1, len(TEXT), len(TEXT) + 1, files.CHUNK_BYTES])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_any_room_gives_all_bytes(room: int, level: int) -> None:
    text = TEXT if room > 7 else TEXT[:300]
    assert inflated(gzip.compress(text, level), room) == text


def test_long_runs_that_fill_the_room_again_and_again() -> None:
    text = b"a" * 1_000_000
    assert inflated(gzip.compress(text), 1000) == text


def test_members_one_after_another_and_zeros_behind_them() -> None:
    assert inflated(gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(b"end") + b"\0" * 512) == TEXT + b"end"


@pytest.mark.parametrize("cut", [1, 8, 20])
def test_a_stream_that_breaks_off(cut: int) -> None:
    data = gzip.compress(TEXT)[:-cut]
    with pytest.raises(InputRefused, match=f"the gzip stream breaks off after byte {len(data):,}"):
        inflated(data)


@pytest.mark.parametrize("at", [1, 40, -6, -2])
def test_damage_is_one_line(at: int) -> None:
    data = bytearray(gzip.compress(TEXT))
    data[at] ^= 0xFF
    with pytest.raises(InputRefused, match=r"damaged gzip stream|breaks off") as refused:
        inflated(bytes(data))
    assert "\n" not in str(refused.value)


def test_what_follows_must_be_gzip() -> None:
    with pytest.raises(InputRefused, match="damaged gzip stream"):
        inflated(gzip.compress(TEXT) + b"garbage behind it")


def test_a_bomb_is_refused() -> None:
    with pytest.raises(TooLarge, match="inflates more than 200:1"):
        inflated(gzip.compress(b"\0" * (files.RATIO_FREE_BYTES + (2 << 20))))
