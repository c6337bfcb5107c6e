"""How the suite's processes start, and how they share its work."""

import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from xdist.scheduler import WorkStealingScheduling

# Child processes and the next run find compiled modules, whatever the shell's settings.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
sys.dont_write_bytecode = False

# Written data survives its process even without fsync; no test cuts a machine's power.
os.fsync = lambda _: None

# Tests make and delete many thousands of small files: in memory, where it has room for them.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# A shell's background jobs ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Import the fixtures, except in a process that only starts others."""
    if config.getoption("dist") == "no":
        gc.disable()  # while modules and tests are made, which stay
        config.pluginmanager.import_plugin("tests.fixtures")


def pytest_collection(session):
    """Let each process begin with different modules, so that only one compiles each module."""
    own = getattr(session.config, "workerinput", {"workerid": "gw0", "workercount": 1})
    paths = [path for name in session.config.args for path in Path(name).rglob("test_*.py")]
    for path in sorted(paths)[int(own["workerid"][2:]) :: own["workercount"]]:
        with contextlib.suppress(Exception):  # which collecting tells
            importlib.import_module(".".join(path.with_suffix("").parts))


def pytest_collection_finish():
    """Collect garbage less often, and without the objects that stay until the end."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)
    gc.enable()


def pytest_xdist_make_scheduler(config, log):
    """Let each process begin with neighbours, which share their fixtures."""
    return WorkStealingScheduling(config, log)


def pytest_xdist_auto_num_workers():
    """Return one process more than there are processors: many tests wait for others."""
    return (os.cpu_count() or 1) + 1
