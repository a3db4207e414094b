"""The topic numbers of a message in one number of 64 bits: the place of the message in its topic.

The lower 18 bits are how many numbers the message has, one for each fragment, and the upper ones are the first number.
The place of a message whose numbers do not fit is 0: not known. That is a message with more than 262,143 fragments, or
one behind more than 70,000,000,000,000 others of its topic.
"""

def pack(first: int, last: int) -> int:
    """Returns the place of a message that has these first and last topic numbers."""

def unpack(place: int) -> tuple[int, int] | None:
    """Returns first and last topic number; None when they are not known."""
