"""Damage to bytes, as disks, wires and people do it."""

from hypothesis import strategies as st

BYTES = (b"", b"\x00", b"\xff", b'"', b"\\", b"\\ud800", b"\n", b"=")
VALUES = (b"9" * 5000, b"-1", b"1e999", b"NaN", b"null", b"3000-13-01")
BRACKETS = (b"{", b"[" * 3000, b'{"a":' * 3000)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Return content with some places overwritten, cut out, repeated or filled in."""
    places = st.integers(0, len(content))
    new = st.sampled_from(BYTES + VALUES + BRACKETS) | st.binary(max_size=4)
    edit = st.tuples(places, st.integers(0, 40), new)

    def apply(edits: list[tuple[int, int, bytes]], copies: list[tuple[int, int, int]]) -> bytes:
        edited = content
        for at, length, new in edits:
            edited = edited[:at] + new + edited[at + length :]
        for at, length, to in copies:
            edited = edited[:to] + edited[at : at + length] + edited[to:]
        return edited

    copies = st.tuples(places, st.integers(0, 80), places)
    return st.builds(apply, st.lists(edit, max_size=3), st.lists(copies, max_size=2))
