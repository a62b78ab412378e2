"""Decorators refuse what cannot work when the module is imported, not when the step runs."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import UsageError, agent, step


async def sample(x: int) -> int:
    return x


@agent(name="decorated")
async def decorated() -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "twice"}, "'read', 'idempotent', 'once'"),
        ({"retry": 3}, "no option 'retry'. Use effect, probe, on_doubt, retries"),
        ({"retries": "x"}, "retries='x'"),
        ({"retries": None}, "retries=None"),
        ({"retries": -1}, "retries=-1"),
        ({"timeout": "x"}, "timeout='x'"),
        ({"timeout": 0}, "timeout=0"),
        ({"probe": "x"}, "probe='x' is not a function"),
        ({"raises": 3}, "raises=3 is not an exception class"),
        ({"raises": [int]}, "is not an exception class"),
        ({"name": 3}, "needs a name"),
        ({"name": ""}, "needs a name"),
        ({"limit": "mail"}, "named limits are not there yet"),
        ({"on_doubt": "ask"}, "is not there yet"),
    ],
)
def test_options_of_a_step(options: dict[str, Any], said: str) -> None:
    """Each wrong option is named, with what is right."""
    with pytest.raises(UsageError) as caught:
        step(**options)(sample)
    assert said in str(caught.value)


@pytest.mark.parametrize(("fn", "said"), [(decorated, "is an agent"), (int, "is a class"), (step(sample), "twice")])
def test_what_is_no_step(fn: Any, said: str) -> None:
    """An agent, a class, a step."""
    with pytest.raises(UsageError, match=said):
        step(fn)


@pytest.mark.parametrize("name", [3, "", "x" * 201])
def test_the_name_of_an_agent(name: Any) -> None:
    """Text of a bounded length."""
    with pytest.raises(UsageError, match="needs a name"):
        agent(name=name)(sample)


def test_what_is_still_to_come() -> None:
    """The names of the face can be imported; using what is not there yet says so."""
    from perdure import Done

    assert "Done" in perdure.__all__
    with pytest.raises(UsageError, match=r"state agents are not there yet"):
        Done(1)
    with pytest.raises(UsageError, match=r"state agents are not there yet"):
        agent(state=dict)(sample)
