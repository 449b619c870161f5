"""``python -m taut`` is ``taut``."""

from taut.cli import main

main(prog_name="taut")
