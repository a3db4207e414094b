"""The first parts of a new context: its registry, its doorbell and its event loop."""

from __future__ import annotations

import logging
import os
import secrets
from typing import TYPE_CHECKING

from ipcbus.resolution.local import object_names
from ipcbus.resolution.local.registry import Registry
from ipcbus.runtime.error_mapping import as_ipcbus_error
from ipcbus.runtime.loop.event_loop import EventLoop
from ringbuf.doorbell import Doorbell
from ringbuf.ring_errors import RingError

if TYPE_CHECKING:
    from ipcbus.config import ContextOptions
    from ipcbus.runtime.loop.loop_tasks import LoopTasks

log = logging.getLogger("ipcbus")


def open_registry(domain: str, options: ContextOptions, release: str) -> tuple[int, Registry, Doorbell]:
    """Makes the registry and the doorbell of a new context.

    Args:
        domain: the bus domain.
        options: the options of the context.
        release: the version of this package.

    Returns:
        The unique id of the context, and both objects.

    Raises:
        ipcbus.TransportError: they cannot be made; nothing stays behind.
    """
    while True:
        context_id = secrets.randbelow(0xFFFFFFFF) + 1
        try:
            registry = Registry(
                domain,
                context_id,
                options.context_name,
                release,
                hidden=options.registry_hidden,
                group=options.shared_memory_group,
                busy_wait=int(_spins(options)),
            )
            break
        except FileExistsError:
            continue
        except RingError as error:
            raise as_ipcbus_error(error) from error
    try:
        return context_id, registry, Doorbell(object_names.bell(domain, context_id), group=options.shared_memory_group)
    except BaseException:
        registry.close()
        raise


def open_event_loop(bell: Doorbell, work: LoopTasks, options: ContextOptions) -> EventLoop:
    """Makes the event loop of a new context.

    Raises:
        OSError: the process has no descriptor left.
    """
    sequential = options.operational_mode == "sequential"
    return EventLoop(
        bell,
        work,
        spins=_spins(options),
        linger=options.transport_lbtipc_pend_behavior_linger_loop_count,
        linger_ns=_linger_ns(options),
        sequential=sequential,
        split=not sequential and options.transport_lbtipc_receiver_operational_mode == "sequential",
    )


def _linger_ns(options: ContextOptions) -> int:
    """Returns the longest spin before a sleep; none on one processor, where the other side could not run meanwhile."""
    return options.transport_lbtipc_pend_behavior_linger_maximum * 1000 if os.cpu_count() != 1 else 0


def _spins(options: ContextOptions) -> bool:
    """Returns whether the thread that delivers spins while it waits (`busy_wait`)."""
    return "busy_wait" in (
        options.transport_lbtipc_receiver_thread_behavior,
        options.transport_lbtsmx_receiver_thread_behavior,
    )
