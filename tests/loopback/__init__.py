"""A node of the tests' own, on a loopback socket, independent of the package under test.

By default it answers as real nodes do, which includes that following its cursors loses rows. It can
also misbehave in any way that a node, a proxy or the network in between is known to::

    with LoopbackNode(random_history(1), faults=[Fault(Kind.RESET), Fault.status(503)]) as node:
        table = load(node.url)
        assert sorted_as_served(table) == node.rows
        assert len(node.requests) == 3
"""

from __future__ import annotations

from tests.loopback.faults import Fault, Kind
from tests.loopback.following import follow_cursors
from tests.loopback.histories import (
    LedgerEntry,
    histories,
    random_history,
    read_ledger,
    read_recording,
)
from tests.loopback.node import LoopbackNode
from tests.loopback.query import ACCOUNT_TYPES
from tests.loopback.rows import Row, row_from_json
from tests.loopback.server import Request

__all__ = [
    "ACCOUNT_TYPES",
    "Fault",
    "Kind",
    "LedgerEntry",
    "LoopbackNode",
    "Request",
    "Row",
    "follow_cursors",
    "histories",
    "random_history",
    "read_ledger",
    "read_recording",
    "row_from_json",
]
