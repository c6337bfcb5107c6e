"""Run the command line: `balance-analysis`, or `python -m balance_analysis`."""

import gc
import os
import signal
import sys

_INTERRUPTED = 130


def _end(*_: object) -> None:
    """Exit at once: no command has begun, and each command sets its own handlers."""
    os.write(2, b"balance-analysis: interrupted\n")
    os._exit(_INTERRUPTED)


# Set before the slow imports. A signal that is already ignored, as under `nohup`, stays ignored.
for _number in (signal.SIGINT, signal.SIGTERM):
    if signal.getsignal(_number) is not signal.SIG_IGN:
        signal.signal(_number, _end)

# Imported objects stay alive: scanning them for garbage takes a quarter of the start-up time.
gc.set_threshold(200_000)

# Arrow's own pool keeps freed memory, the system's returns it: `fetch` takes less.
if sys.argv[1:2] == ["fetch"]:
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

from balance_analysis.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
