"""What compilers of torch are told about functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def constant_result(function: Function) -> Function:
    """Mark a function whose result compilers may keep, as ``torch.compiler.assume_constant_result`` does.

    That one imports all of torch's compiler first, which takes as long as torch itself and few programs need.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function
