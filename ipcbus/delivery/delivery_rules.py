"""The rules by which a delivery controller delivers."""

from __future__ import annotations

from dataclasses import dataclass

from ipcbus.delivery import timer_grid

IN_ORDER, AS_IT_ARRIVES, RAW = 1, -1, 0


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """The options of the receivers of a controller, and what their transport does about losses.

    Attributes:
        ordered: option ordered_delivery.
        burst_loss: option delivery_control_maximum_burst_loss.
        caching: option otr_message_caching_threshold.
        loss_check_ns: option delivery_control_loss_check_interval.
        recovery_ns: for how long the transport tries to bring a missing message.
        proximity: option retransmit_message_caching_proximity: a late join that misses more skips live messages.
        waiting_max: with more messages behind a gap that a recovery fills, live messages are skipped; 0 for no limit
            (option otr_message_caching_threshold).
    """

    ordered: int = IN_ORDER
    burst_loss: int = 1024
    caching: int = 10_000
    loss_check_ns: int = 250_000_000
    recovery_ns: int = 0
    proximity: int = 5000
    waiting_max: int = 10_000

    def next_loss_check(self, now_ns: int) -> int:
        """Returns when losses are to be looked for next, in ns of the monotonic clock."""
        return timer_grid.next_ns(now_ns, self.loss_check_ns)

    def may_check(self, next_check_ns: int, now_ns: int) -> bool:
        """Returns whether losses that are to be looked for at `next_check_ns` may be looked for now."""
        return self.loss_check_ns > 0 and now_ns >= timer_grid.early_ns(next_check_ns, self.loss_check_ns)
