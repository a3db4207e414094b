"""The locks that show that the contexts live with which a context shares sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringbuf.held_locks import HeldLocks

if TYPE_CHECKING:
    from ipcbus.runtime.discovery.peers import Peers
    from ipcbus.runtime.receiving.receiving_sessions import ReceivingSessions
    from ipcbus.runtime.sending.sending_sessions import SendingSessions


def peer_locks(
    sending_sessions: SendingSessions, receiving_sessions: ReceivingSessions, peers: Peers
) -> HeldLocks | None:
    """Returns the locks that the peers on this host hold while they live; None if a peer cannot be judged by a lock.

    A peer on another host has no lock here. Its packets, or that none come, show whether it lives.
    """
    locks = sending_sessions.receiver_locks()
    for session in receiving_sessions.sessions():
        lock = session.datagram_source.owner_lock()
        if lock is not None:
            locks.append(lock)
        elif session.datagram_source.is_withdrawn:
            return None
        elif (registry := peers.registry_of(session.advert)) is not None:
            locks.append(registry.owner_lock())
    for context_id in sending_sessions.local_clients():
        found = peers.owner_lock(context_id)
        if found is None:
            return None
        locks.append(found)
    return HeldLocks(locks)
