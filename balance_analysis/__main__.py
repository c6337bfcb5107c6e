"""Run the command line: `balance-analysis`, or `python -m balance_analysis`."""

import gc
import os
import signal
import sys

_INTERRUPTED = 130


def _end(*_: object) -> None:
    """End at once, as nothing is begun yet: a command sets handlers of its own."""
    os.write(2, b"balance-analysis: interrupted\n")
    os._exit(_INTERRUPTED)


# Before anything is imported that takes its time. What ignores signals, as `nohup`, goes on so.
for _number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, _end)

# What is imported stays. To look through it for garbage again and again takes a quarter of a start.
gc.set_threshold(200_000)

# Arrow keeps what a page took, unless the system has it: a seventh of all memory of the command.
if sys.argv[1:2] == ["fetch"]:
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

from balance_analysis.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
