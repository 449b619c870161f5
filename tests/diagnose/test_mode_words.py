"""Every failure mode has its words wherever a reader would miss them."""

from __future__ import annotations

import pytest

from taut.briefing.finding_words import PLAIN
from taut.diagnose import instability, nondeterminism
from taut.diagnose.detectors import DETECTORS
from taut.render.brief.remedies import TESTS
from taut.views.headlines import _TITLES

MODES = [*(mode for detector in DETECTORS for mode in detector.MODES), instability.MODE, nondeterminism.MODE]
WORDED = {
    "TESTS of render/brief/remedies.py": (TESTS, ()),
    "PLAIN of briefing/finding_words.py": (PLAIN, (instability.MODE,)),
    "_TITLES of views/headlines.py": (_TITLES, ()),
}
"""Where words of modes are → (the words, modes that need none there). What nobody in particular causes has a sentence of its
own in a briefing."""


@pytest.mark.parametrize("place", WORDED)
def test_every_mode_is_worded(place: str) -> None:
    words, none_needed = WORDED[place]
    assert sorted(set(MODES)) == sorted([*words, *none_needed]), (
        f"give the mode its words in {place}, or list it as needing none"
    )


def test_a_mode_is_found_in_one_file() -> None:
    assert len(MODES) == len(set(MODES))
