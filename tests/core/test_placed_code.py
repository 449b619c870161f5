"""Object code placed in memory: it does what LLVM's linker would have it do, and what is not understood is refused."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable

import llvmlite.binding as llvm
import pytest

from taut.core.placed_code import address_in_process, loaded, placed

AWAY = """
@table = private constant [3 x i64] [i64 2, i64 3, i64 5]
@empty = common global i64 0
declare i64 @labs(i64)
define i64 @call(i64 %i) {
  %place = getelementptr [3 x i64], ptr @table, i64 0, i64 %i
  %a = load i64, ptr %place
  %b = load i64, ptr @empty
  %c = sub i64 %b, %a
  %d = call i64 @labs(i64 %c)
  %e = mul i64 %d, 10
  ret i64 %e
}
"""
"""Code that refers to a constant, to zeros and to a function of the C library."""
WRITTEN = """
@count = global i64 7
define i64 @call(i64 %i) {
  store i64 %i, ptr @count
  ret i64 %i
}
"""

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors' code is loaded by LLVM")


def code(text: str, model: str = "large") -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(codemodel=model)
    made: bytes = machine.emit_object(llvm.parse_assembly(text))
    return made


def called(text: str) -> Callable[[int], int]:
    ready = placed(code(text), "call")
    assert ready is not None
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded(*ready, address_in_process))


def test_code_finds_its_constants_its_zeros_and_functions_of_the_process() -> None:
    run = called(AWAY)
    assert [run(i) for i in range(3)] == [20, 30, 50]


def test_code_that_is_written_to_is_left_to_llvm() -> None:
    assert placed(code(WRITTEN), "call") is None


def test_code_that_refers_to_what_is_near_is_left_to_llvm() -> None:
    assert placed(code(AWAY, "small"), "call") is None


@pytest.mark.parametrize("start", [b"", b"\xcf\xfa\xed\xfe", b"\x7fELF\x02\x01\x01" + bytes(11) + b"\xb7\x00"])
def test_code_of_other_systems_and_processors_is_left_to_llvm(start: bytes) -> None:
    assert placed(start + bytes(64), "call") is None


def test_a_name_that_nothing_here_has_is_an_error() -> None:
    ready = placed(code(AWAY.replace("labs", "nothing_of_this_name")), "call")
    assert ready is not None
    with pytest.raises(ValueError, match="nothing_of_this_name"):
        loaded(*ready, address_in_process)
