"""Many small cases in one test."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NAME_MAX = 200
"""Characters of a case's name; a report that shows a megabyte of bytes is of no use."""
_PARAM = type(pytest.param(None))


def each_of(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Callable[[Any], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Returns a decorator that runs a test for each case, as `pytest.mark.parametrize` does, but as one test.

    It is for cases that take less time than what every test costs: its fixtures, the look around after it, its line in
    the report. All cases are tried; each that failed is in the report, with its name and its own traceback.

    Args:
        names: arguments of the test, as for `parametrize`.
        cases: a value each, or a tuple of values where there are several names, or `pytest.param`.
        ids: what a case is called in a report, as a function of its only value; otherwise, it is called as it prints.
    """
    each = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    listed = [_values(case, len(each)) for case in cases]
    assert listed, "there are no cases"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**arguments: object) -> None:
            __tracebackhide__ = True
            failed: list[BaseException] = []
            for values in listed:
                try:
                    test(**arguments, **dict(zip(each, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    name = ids(values[0]) if ids else ", ".join(map(repr, values))
                    error.add_note(f"case: {name[:_NAME_MAX]}")
                    failed.append(error)
                    if "pytest-timeout" in str(error):
                        break  # nothing would end the next case
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(listed)} cases failed", failed)

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in each]
        assert len(kept) + len(each) == len(signature.parameters), f"{test.__name__} does not take {each}"
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]  # pytest reads it
        return run

    return decorate


def _values(case: object, count: int) -> tuple[Any, ...]:
    if isinstance(case, _PARAM):
        assert not case.marks, "a case has no marks: they are the test's"
        return tuple(case.values)
    if count == 1:
        return (case,)
    assert isinstance(case, tuple | list)
    return tuple(case)
