"""A flipped byte is found and named; other runs go on (S1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import pytest
from tests.unit.store.support import add, hold, run

from perdure.base.status import ControlKind, Status
from perdure.errors import StoreDamaged
from perdure.store.contract import RunChange, RunWrite, Verdict, Where
from perdure.testing.conformance.kit import StillWorld, begun, ended, executed, new, who

if TYPE_CHECKING:
    from pathlib import Path


def change(path: Path, sql: str, *values: object) -> None:
    """What a bad disk or a stranger does."""
    db = apsw.Connection(str(path))
    db.execute(sql, values)
    db.close()


async def fill(store) -> None:
    """Runs r and other, ready, with ten records each: 1 to 4 in a first row, the others in a second one."""
    for name in ("r", "other"):
        worker, held = await hold(store, name)
        await add(store, worker, held, *range(1, 5))
        store._known = store._nothing_known()
        await add(store, worker, held, *range(5, 10))
        await add(store, worker, held, 10)
        await store.retire(worker)


HEAD = 8
WHOLE = executed(5)
"""Every record of `fill` is as long as this one."""


def place(number: int) -> int:
    """Where that record's head begins in its row."""
    return (number - (1 if number < 5 else 5)) * (HEAD + len(WHOLE))


def spoil(path: Path, number: int, how) -> None:
    """Change the row of run r that holds this record; `how` gets its bytes and the place of the record's head."""
    first = 1 if number < 5 else 5
    db = apsw.Connection(str(path))
    row = db.execute("SELECT body FROM journal WHERE run = 1 AND seq = ?", (first,)).get
    db.execute("UPDATE journal SET body = ? WHERE run = 1 AND seq = ?", (how(row, place(number)), first))
    db.close()


def put(at: int, data: bytes):
    """Other bytes, so far behind the record's head."""
    return lambda row, head: row[: head + at] + data + row[head + at + len(data) :]


@pytest.mark.parametrize(
    ("number", "how", "words"),
    [
        pytest.param(4, put(HEAD, bytes(len(WHOLE))), "record 4 does not match", id="zeros"),
        pytest.param(10, put(4, b"\0\0\0\0"), "record 10 does not match", id="another checksum"),
        pytest.param(6, put(0, b"\xff\xff\xff\xff"), "record 6 does not match", id="a great length"),
        pytest.param(6, put(0, b"\0\0\0\0"), "record 6 does not match", id="no length"),
        pytest.param(10, lambda row, _: row[:-1], "record 10 does not match", id="cut by a byte"),
        pytest.param(10, lambda row, head: row[: head + 3], "record 10 is not whole", id="cut in its head"),
        pytest.param(10, lambda row, head: row[:head], "record 10 is not whole", id="cut before it"),
        pytest.param(10, lambda row, _: row + b"\0", "record 11 is not whole", id="too long"),
        pytest.param(2, lambda *_: b"", "record 1 is not whole", id="an empty row"),
    ],
)
def test_a_damaged_record_is_named(number: int, how, words: str, tmp_path: Path) -> None:
    """With run and number, when the journal is read and by `check`; the other run is fine."""
    path = tmp_path / "p.db"
    run(path, fill)
    spoil(path, number, how)
    run(path, lambda store: found_in_r(store, words))


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM journal WHERE run = 1 AND seq = 1", "record 1 is missing"),
        ("UPDATE journal SET seq = 40 WHERE run = 1 AND seq = 1", "record 1 is missing"),
        ("UPDATE journal SET seq = 6 WHERE run = 1 AND seq = 5", "record 5 is missing"),
        ("UPDATE journal SET count = 5 WHERE run = 1 AND seq = 1", "record 5 is"),
        ("UPDATE journal SET count = 3 WHERE run = 1 AND seq = 1", "record 4 is"),
        ("UPDATE journal SET count = 0 WHERE run = 1 AND seq = 5", "record 5 is not whole"),
    ],
)
def test_a_damaged_row_is_named(sql: str, words: str, tmp_path: Path) -> None:
    """By the record that should be there."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, sql)
    run(path, lambda store: found_in_r(store, words))


async def found_in_r(store, words: str) -> None:
    with pytest.raises(StoreDamaged, match=r"run 'r'") as caught:
        await store.journal(1)
    assert words in str(caught.value)
    assert any(words in finding for finding in await store.check())
    assert len(await store.journal(2)) == 10


def test_two_records_that_change_places_are_found(tmp_path: Path) -> None:
    """The checksum covers run and number too."""
    path = tmp_path / "p.db"
    run(path, fill)
    size = HEAD + len(WHOLE)
    spoil(
        path,
        2,
        lambda row, head: (
            row[:head] + row[head + size : head + 2 * size] + row[head : head + size] + row[head + 2 * size :]
        ),
    )

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match="record 2 "):
            await store.journal(1)

    run(path, scenario)


def test_a_row_of_another_run_is_found(tmp_path: Path) -> None:
    """The checksum covers the run."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(
        path,
        "UPDATE journal SET body = (SELECT body FROM journal WHERE run = 2 AND seq = 1) WHERE run = 1 AND seq = 1",
    )
    run(path, lambda store: found_in_r(store, "record 1 does not match"))


def test_any_flipped_byte_of_a_record_is_found(tmp_path: Path) -> None:
    """Each byte of a record and of its head, one after the other."""
    path = tmp_path / "p.db"
    run(path, fill)

    async def scenario(store) -> None:
        db = store._engine._connected(0)
        whole = db.execute("SELECT body FROM journal WHERE run = 1 AND seq = 5").get
        for at in range(place(6), place(7)):
            flipped = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
            db.execute("UPDATE journal SET body = ? WHERE run = 1 AND seq = 5", (flipped,))
            with pytest.raises(StoreDamaged, match="record 6 "):
                await store.journal(1)
        db.execute("UPDATE journal SET body = ? WHERE run = 1 AND seq = 5", (whole,))
        assert len(await store.journal(1)) == 10

    run(path, scenario)


def test_a_damaged_journal_stops_one_run_of_a_batch(tmp_path: Path) -> None:
    """A write that comes again is compared with what is stored; where that cannot be read, its run is refused and the others go on."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        other = (await store.create(new("other"), worker=worker))[0].run
        await add(store, worker, held, 1, 2)
        spoil(tmp_path / "p.db", 2, put(HEAD, b"\0"))
        writes = [RunWrite(run.num, run.epoch, 1, [executed(1), executed(2)]) for run in (held, other)]
        assert (await store.append(worker, writes)).verdicts == [Verdict.CONFLICT, Verdict.DONE]

    run(tmp_path / "p.db", scenario)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs SET input = x'00' WHERE id = 'r'",
        "UPDATE runs SET input = NULL WHERE id = 'r'",
        "UPDATE runs SET tags = '{' WHERE id = 'r'",
        "UPDATE runs SET progress = x'ff' WHERE id = 'r'",
        "UPDATE runs SET result = x'01' WHERE id = 'r'",
        "UPDATE runs SET error = x'01' WHERE id = 'r'",
        "UPDATE runs SET agent = 'b' WHERE id = 'r'",
        "UPDATE runs SET module = 'n' WHERE id = 'r'",
        "UPDATE runs SET queue = 'other' WHERE id = 'r'",
        "UPDATE runs SET tags = '{\"k\":\"v\"}' WHERE id = 'r'",
        "UPDATE runs SET priority = 7 WHERE id = 'r'",
        "UPDATE runs SET created_at = 7 WHERE id = 'r'",
        "UPDATE runs SET agent = CAST(x'ff' AS TEXT) WHERE id = 'r'",
        "UPDATE runs SET module = CAST(x'ff' AS TEXT) WHERE id = 'r'",
    ],
)
def test_a_damaged_run_is_parked_and_others_go_on(sql: str, tmp_path: Path) -> None:
    """Reading it raises; a claim parks it for `store` and takes the other; a listing shows both."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, sql)

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match="run 'r'"):
            await store.run("r")
        assert any("run 'r'" in finding for finding in await store.check())
        rows = await store.runs(Where(), limit=10)
        assert [(row.id, row.reason) for row in rows] == [("other", None), ("r", "store")]
        worker, _ = await hold(store, "mine")
        assert [taken.run.id for taken in await store.claim(worker, ["a"], limit=10, only=None)] == ["other"]
        assert await store.claim(worker, ["a"], limit=10) == []
        await store.park_orphans(["a"], [])
        with pytest.raises(StoreDamaged, match="run 'r'"):
            await store.control("r", ControlKind.RESUME, body=b"", by="me")

    run(path, scenario)


def test_an_id_that_is_no_text_hides_no_other_run(tmp_path: Path) -> None:
    """Every verb that comes across it goes on."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, "UPDATE runs SET id = CAST(x'72ff' AS TEXT) WHERE id = 'r'")

    async def scenario(store) -> None:
        rows = await store.runs(Where(statuses=["queued", "parked"]), limit=10)
        assert [(row.id, row.reason) for row in rows] == [("other", None), ("r\N{REPLACEMENT CHARACTER}", "store")]
        assert any("run 'r\N{REPLACEMENT CHARACTER}'" in finding for finding in await store.check())
        worker = await store.register(who("w"), ttl_s=30)
        assert [taken.run.id for taken in await store.claim(worker, ["a"], limit=10)] == ["other"]
        assert await store.bury(worker, dead=True) == ["other"]

    run(path, scenario)


@pytest.mark.parametrize(
    "column", ["agents = '{'", "modules = ''", "name = CAST(x'ff' AS TEXT)", "host = CAST(x'ff' AS TEXT)"]
)
def test_a_damaged_worker_can_be_buried(column: str, tmp_path: Path) -> None:
    """Neighbours see a stranger and bury it when its lease is over; till then no run is called orphaned."""
    path = tmp_path / "p.db"
    world = StillWorld()

    async def scenario(store) -> None:
        worker, _ = await hold(store)
        await store.create(new("orphan", agent="gone"))
        store._engine._connected(0).execute(f"UPDATE workers SET {column}")
        (row,) = await store.workers()
        assert (row.num, row.info.name, row.held) == (worker, "(unreadable)", 1)
        assert await store.check() == [f"the row of worker {worker} cannot be read"]
        assert await store.bury(worker, dead=False) is None
        await store.park_orphans(["a"], [])
        world.advance(31)
        assert await store.bury(worker, dead=False) == ["r"]
        assert await store.check() == []

    run(path, scenario, world=world)


def test_a_request_that_cannot_be_read_pauses_its_run(tmp_path: Path) -> None:
    """Nothing is done in its name (C1), and the others are not held up."""
    path = tmp_path / "p.db"
    run(path, fill)

    async def scenario(store) -> None:
        worker, held = await hold(store, "held")
        for name in ("r", "held"):
            await store.control(name, ControlKind.CANCEL, body=b"", by="me")
        store._engine._connected(0).execute("UPDATE controls SET kind = CAST(x'ff' AS TEXT)")
        assert len([finding for finding in await store.check() if finding.startswith("request ")]) == 2
        taken = await store.claim(worker, ["a"], limit=10)
        found = {one.run.id: [control.kind for control in one.controls] for one in taken}
        assert found == {"r": [ControlKind.PAUSE], "other": []}
        controls = {control.run: control.kind for control in await store.controls(worker, after=0)}
        assert controls[held.num] is ControlKind.PAUSE

    run(path, scenario)


def test_a_damaged_run_of_a_dead_worker_is_not_set_going(tmp_path: Path) -> None:
    """It may have been paused: nobody knows. The others go on."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, _ = await hold(store)
        await store.create(new("other"), worker=worker)
        store._engine._connected(0).execute("UPDATE runs SET status = 'pausee' WHERE id = 'r'")
        assert await store.bury(worker, dead=True) == ["r", "other"]
        assert [(row.id, row.status) for row in await store.runs(Where(), limit=9)] == [
            ("other", Status.QUEUED),
            ("r", Status.PARKED),
        ]
        heir = await store.register(who("heir"), ttl_s=30)
        assert [taken.run.id for taken in await store.claim(heir, ["a"], limit=10)] == ["other"]

    run(path, scenario)


@pytest.mark.parametrize("what", ["status = 'odd'", "status = CAST(x'ff' AS TEXT)", "waiting_on = CAST(x'ff' AS TEXT)"])
def test_an_unknown_state_is_damage(what: str, tmp_path: Path) -> None:
    """Not a crash of the reader."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, f"UPDATE runs SET {what} WHERE id = 'r'")

    async def scenario(store) -> None:
        with pytest.raises(StoreDamaged, match="run 'r'"):
            await store.run("r")

    run(path, scenario)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DELETE FROM runs WHERE id = 'r'", "no such run"),
        ("UPDATE runs SET worker = 99 WHERE id = 'r'", "held by a worker that does not exist"),
        ("UPDATE runs SET status = 'completed' WHERE id = 'r'", "ended and is ready"),
        ("INSERT INTO controls (run, kind, body, \"by\", at) VALUES (99, 'pause', x'', '', 1)", "no such run"),
    ],
)
def test_tables_that_contradict_each_other_are_found(sql: str, words: str, tmp_path: Path) -> None:
    """`check` says what is wrong in plain words."""
    path = tmp_path / "p.db"
    run(path, fill)
    change(path, sql)

    async def scenario(store) -> None:
        assert any(words in finding for finding in await store.check())

    run(path, scenario)


def test_a_record_of_no_known_kind_is_found(tmp_path: Path) -> None:
    """Its checksum is right and it means nothing."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await store.append(worker, [RunWrite(held.num, 1, 1, [begun(), b"\x91\x63"])])
        assert any("record 2" in finding for finding in await store.check())

    run(tmp_path / "p.db", scenario)


def test_an_open_run_whose_journal_has_ended_is_found(tmp_path: Path) -> None:
    """Unless somebody has asked for a retry, which no worker has heard of yet."""
    path = tmp_path / "p.db"

    async def scenario(store) -> None:
        worker, held = await hold(store)
        await store.append(
            worker, [RunWrite(held.num, 1, 1, [begun(), ended()], RunChange(Status.FAILED, release=True))]
        )
        assert await store.check() == []
        await store.control("r", ControlKind.RETRY, body=b"", by="me")
        assert await store.check() == []

    run(path, scenario)
    change(path, "DELETE FROM controls")

    async def checked(store) -> None:
        assert await store.check() == ["run 'r' is open and its journal has ended"]

    run(path, checked)


def test_a_sound_store_has_no_findings(tmp_path: Path) -> None:
    """With ended runs, long inputs and requests in it."""

    async def scenario(store) -> None:
        worker, held = await hold(store)
        change = RunChange(Status.COMPLETED, result=b"x", release=True)
        await store.append(worker, [RunWrite(held.num, 1, 1, [begun(), ended()], change)])
        await hold(store, "held")
        await store.control("held", ControlKind.PAUSE, body=b"", by="me")
        assert await store.check() == []

    run(tmp_path / "p.db", scenario)


def test_flipped_bytes_of_the_file_never_pass_for_data(tmp_path: Path) -> None:
    """Each journal either reads as it was written or raises StoreDamaged; nothing else is raised."""
    path = tmp_path / "p.db"
    run(path, fill)
    whole = path.read_bytes()
    good = [executed(n) for n in range(1, 11)]

    async def scenario(store) -> None:
        for num in (1, 2):
            try:
                found = await store.journal(num)
            except StoreDamaged:
                continue
            assert found == good[: len(found)]
            if len(found) < len(good):
                assert await store.check() != []

    for at in range(100, len(whole), 997):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        try:
            run(path, scenario)
        except StoreDamaged:
            continue
