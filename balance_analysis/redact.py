"""Keep credentials out of what is shown or written."""

from __future__ import annotations

import re
from typing import Final

_USER: Final = re.compile(r"(?<=://)[^/\s?#]*@")
_PARAMETER: Final = re.compile(
    r"(?<=[?&])([^=&\s]*(?:secret|token|password|credential|signature|key)[^=&\s]*)=[^&\s\"']*",
    re.IGNORECASE,
)


def without_credentials(text: str) -> str:
    """Return text in which the user of each address, and parameters that look secret, are `***`.

    Examples
    --------
    >>> without_credentials("https://me:secret@node.example.org/x")
    'https://***@node.example.org/x'
    """
    return _PARAMETER.sub(r"\1=***", _USER.sub("***@", text))
