"""Run the command line: `balance-analysis`, or `python -m balance_analysis`."""

import gc

# What is imported stays. To look through it for garbage again and again takes a quarter of a start.
gc.set_threshold(200_000)

from balance_analysis.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
