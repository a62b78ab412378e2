"""Replays, in a process of its own, the journals that it is given as JSON on stdin: {"agent/order": [record in
hex, …]}."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.unit.kernel.test_primitives import ORDERS, primitives, scripted

from perdure.base.records import Ended, decode_record
from perdure.testing.replay import Play, ReplayMismatch, play, replay_prefixes


def main() -> None:
    logging.disable()
    different: list[str] = []
    given = json.load(sys.stdin)
    for case, records in given.items():
        name, _, order = case.partition("/")
        agent, script = primitives.AGENTS[name], scripted(ORDERS[order])
        journal = tuple(bytes.fromhex(record) for record in records)
        ended = decode_record(journal[-1])
        assert isinstance(ended, Ended)
        mine = play(agent, script=script)
        if mine.journal != journal:
            different.append(f"{case}: written differently")
            continue
        try:
            replay_prefixes(agent, whole=Play(journal, ended, mine.calls), script=script)
        except ReplayMismatch as mismatch:
            different.append(f"{case}: {mismatch}")
    json.dump({"runs": len(given), "different": different}, sys.stdout)


main()
