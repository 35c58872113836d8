"""The open streams of the agents, and the intervals that were last sent on all of them."""

from __future__ import annotations

from collections.abc import Callable

from elasticjob_master.core.rendezvous.commands import (
    CloseStream,
    Command,
    Configure,
    MemberRemoved,
)
from elasticjob_master.core.report_intervals import Intervals, differ_much

Send = Callable[[Command], None]


class AgentStreams:
    """Sends commands to connected members by their pod UIDs."""

    def __init__(self, intervals: Intervals) -> None:
        self._send: dict[str, Send] = {}
        self._last_sent = intervals

    def __len__(self) -> int:
        return len(self._send)

    def open(self, uid: str, send: Send) -> None:
        """Add a member's stream, in place of an older one."""
        older = self._send.get(uid)
        if older is not None and older is not send:
            older(CloseStream(uid))
        self._send[uid] = send

    def close(self, uid: str, send: Send) -> bool:
        """Forget a stream that has ended; return whether it was the member's newest one."""
        newest = self._send.get(uid) is send
        if newest:
            del self._send[uid]
        return newest

    def send(self, command: Command) -> None:
        """Send a command to a member, if it is connected.

        The stream of a removed member is forgotten.
        """
        send = self._send.get(command.uid)
        if isinstance(command, MemberRemoved):
            self._send.pop(command.uid, None)
        if send is not None:
            send(command)

    def send_intervals(self, now: Intervals) -> None:
        """Send the intervals to all agents if they differ much from the last ones.

        New agents get the intervals in the answer to Register.
        """
        if differ_much(self._last_sent, now):
            self._last_sent = now
            for uid, send in self._send.items():
                send(Configure(uid, now.heartbeat, now.report))
