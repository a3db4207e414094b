"""Bytes of flat containers: tuples, lists and dictionaries of plain values, which need no pickle.

A container is its values one after the other, of a dictionary key and value in turn. A value is a letter, and behind it
8 bytes (int, float), or a length of 4 bytes and the bytes (text in UTF-8, bytes), or nothing (None, True, False).
"""

from typing import Any

def encode_flat(values: tuple[Any, ...] | list[Any] | dict[Any, Any]) -> bytes | None:
    """Returns the bytes of a container.

    Returns:
        None if a value is of another type, an int has more than 64 bits, a text has halves of surrogate pairs, or the
        bytes are more than a few: then pickle is as good.
    """

def decode_flat(data: bytes) -> list[Any]:
    """Returns the values of a container, of a dictionary key and value in turn.

    Raises:
        ValueError: the bytes are not those of values.
    """
