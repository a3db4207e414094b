"""The options of an event queue."""

from __future__ import annotations

from ipcbus.config.option_values import Option, OptionValues
from ipcbus.config.options.option_limits import MAX_COUNT, MAX_NAME


class EventQueueOptions(OptionValues, scope="event_queue"):
    """Options of an event queue."""

    event_queue_name = Option(
        default="",
        maximum=MAX_NAME,
        meaning="Names the queue in warnings and statistics; it need not be unique.",
    )
    queue_size_warning = Option(
        default=0,
        unit="events",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="A queue that holds more events than this warns; 0 does not look.",
    )
    queue_delay_warning = Option(
        default=0,
        unit="us",
        minimum=0,
        maximum=MAX_COUNT,
        special_zero=True,
        meaning="A queue whose event waited longer than this before it was dispatched warns; 0 does not look.",
    )
    queue_age_enabled = Option(
        default=True,
        meaning="Measures how long events wait in the queue. Ultra Messaging: 0.",
    )
    queue_service_time_enabled = Option(
        default=True,
        meaning="Measures how long callbacks of the queue take. Ultra Messaging: 0.",
    )
    queue_count_enabled = Option(
        default=True,
        meaning="Counts the events in the queue, by kind. Ultra Messaging: 0.",
    )
