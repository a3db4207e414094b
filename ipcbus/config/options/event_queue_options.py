"""The options of an event queue."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.option_limits import MAX_COUNT, MAX_NAME, queue_bytes


class EventQueueOptions(OptionValues, scope="event_queue"):
    """Options of an event queue: its warnings and what it measures."""

    event_queue_name = Option(
        default="",
        maximum=MAX_NAME,
        meaning="Name of the queue in warnings and statistics; it need not be unique.",
    )
    queue_bytes_maximum = queue_bytes(
        "The queue is full too when the messages that wait have this many bytes; an empty queue takes any "
        "message. So callbacks that are slower than the sources do not fill the memory of the host with long messages. "
        "An addition to Ultra Messaging.",
    )
    queue_size_warning = Option(
        default=0,
        unit="events",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="The queue warns when it holds more events than this; 0: off.",
    )
    queue_delay_warning = Option(
        default=0,
        unit="us",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="The queue warns when an event waited longer than this before it was dispatched; 0: off.",
    )
    queue_age_enabled = Option(
        default=True,
        meaning="Whether the queue measures how long events wait in it. Ultra Messaging: 0.",
    )
    queue_service_time_enabled = Option(
        default=True,
        meaning="Whether the queue measures how long its callbacks take. Ultra Messaging: 0.",
    )
    queue_count_enabled = Option(
        default=True,
        meaning="Whether the queue counts the events in it, by kind. Ultra Messaging: 0.",
    )
