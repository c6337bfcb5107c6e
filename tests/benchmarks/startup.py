"""How long commands and imports take that do little."""

import sys
from pathlib import Path

from balance_analysis.demo import sample_data
from tests.benchmarks.figures import Figure, program, ratios, run

BARE = "python -c pass"


def measure(_: Path, rounds: int):
    """Yield the milliseconds of starts beyond those of a bare interpreter."""
    sample = str(sample_data() / "changes.parquet")
    table = f"import balance_analysis as ba; ba.read_parquet({sample!r})"
    commands = {
        BARE: ([sys.executable, "-P", "-c", "pass"], None),
        "--help": (program("--help"), 200),
        "import balance_analysis": ([sys.executable, "-P", "-c", "import balance_analysis"], 100),
        "import pandas": ([sys.executable, "-P", "-c", "import pandas"], None),
        "the sample as a table": ([sys.executable, "-P", "-c", table], None),
    }
    measured: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(3 * rounds):
        for name, (command, _) in commands.items():
            measured[name].append(1000 * run(command).seconds)
    for name, (_, most) in commands.items():
        yield Figure(f"start-up, {name}", tuple(measured[name]), "ms", at_most=most)
    times = ratios(measured["the sample as a table"], measured["import pandas"])
    yield Figure("start-up, the sample as a table / import pandas", times, "times", at_most=1.3)
