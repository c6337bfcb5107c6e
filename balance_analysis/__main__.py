"""Run the command line with `python -m balance_analysis`."""

from balance_analysis.cli import main

main()
