"""Who takes part in the next forward pass when not all searches fit into it.

Fair queueing in two levels: clients share the passes equally, and so do the requests of a client;
the searches of one request go in order. Cost is counted in canvases. A request that is more than `quantum` canvases ahead waits for the
others, so that a small request does not wait for wide ones. Which pass a search takes part in does
not change its result.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

SHARES_PER_BATCH = 8


@dataclass(frozen=True, slots=True)
class Demand:
    """A search that is ready for a forward pass."""

    key: int
    client: str
    request: int
    size: int  # canvases


class FairShare:
    """Counts what everyone was served while there is not enough for all."""

    def __init__(self, batch: int) -> None:
        self.batch, self.quantum = batch, max(1, batch // SHARES_PER_BATCH)
        self._served: dict[Hashable, int] = {}

    def choose(self, demands: Sequence[Demand]) -> list[int]:
        """Keys of the searches in the next pass: all that fit, those served least first."""
        if sum(one.size for one in demands) <= self.batch:
            self._served.clear()  # nobody has to wait, so nobody is owed anything
            return [one.key for one in demands]
        floor = self._enter({one.client for one in demands})
        floors = {
            client: self._enter({_flow(one) for one in demands if one.client == client})
            for client in {one.client for one in demands}
        }
        served, chosen, room = self._served, list[int](), self.batch
        left = list(demands)
        while left:
            one = min(left, key=lambda one: (served[one.client], served[_flow(one)], one.key))
            left.remove(one)
            ahead = max(served[one.client] - floor, served[_flow(one)] - floors[one.client])
            if chosen and (ahead > self.quantum or one.size > room):
                continue
            chosen.append(one.key)
            room -= one.size
            served[one.client] += one.size
            served[_flow(one)] += one.size
        return chosen

    def _enter(self, flows: Iterable[Hashable]) -> int:
        """Let newcomers start level with whoever was served least; returns that level."""
        flows = set(flows)
        least = min((self._served[one] for one in flows if one in self._served), default=0)
        for one in flows:
            self._served.setdefault(one, least)
        return least

    def keep(self, running: Iterable[tuple[str, int]]) -> None:
        """Forget everyone but the clients and requests that still run."""
        alive: set[Hashable] = {
            flow for client, request in running for flow in (client, (client, request))
        }
        self._served = {flow: served for flow, served in self._served.items() if flow in alive}


def _flow(one: Demand) -> tuple[str, int]:
    return one.client, one.request
