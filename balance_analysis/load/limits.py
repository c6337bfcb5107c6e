"""Load the network's limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from balance_analysis.node.client import NETWORK_LIMITS, Client
from balance_analysis.node.limits import decode_limits, network_limits

if TYPE_CHECKING:
    from balance_analysis.schema import NetworkLimits


def load_network_limits(client: Client) -> NetworkLimits:
    """Load the network's limits as they are now.

    Returns
    -------
    NetworkLimits
        With the moment of asking, the source, and the node's last block.

    Raises
    ------
    RequestError
        If the node can't be reached or refuses; before a network's first block a node answers 404.
    DecodeError
        If the answer is not what the interface describes.
    """
    fetched_at = pd.Timestamp.now("UTC")
    answer = client.get(NETWORK_LIMITS, [], decode_limits)
    return network_limits(
        answer.value,
        fetched_at=fetched_at,
        source=answer.source,
        block_height=answer.block_height,
    )
