"""A node of the tests' own, on a loopback socket, independent of the package under test.

By default it answers as real nodes do, which includes that following its cursors loses rows. It can
also misbehave in any way that a node, a proxy or the network in between is known to::

    with LoopbackNode(random_history(1), faults=[Fault(Kind.RESET), Fault.status(503)]) as node:
        table = load(node.url)
        assert sorted_as_served(table) == node.rows
        assert len(node.requests) == 3
"""

# ruff: noqa: F401 - what the other rooms import from here

from tests.loopback.node import CHANGES, LIMITS, V71_LIMITS, LoopbackNode
from tests.loopback.rows import (
    Row,
    account_id,
    histories,
    random_history,
    read_ledger,
    read_recording,
    row_from_json,
    spoilt,
)
from tests.loopback.server import Fault, Kind, Request, nobody
