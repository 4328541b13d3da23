"""Shared fixtures: where the reference data lies, and which tests need a flag."""

import gc
import importlib.util
import os
from pathlib import Path

import pytest
import torch


def patch_language_once_per_launch():
    """Spare Triton's interpreter up to half of its work.

    It replaces the functions of its language when a kernel starts, and needlessly all of them anew whenever the kernel
    calls a function; once for each module that calls come to is enough. Other versions may work in another way, and
    are left alone.
    """
    from triton.runtime import interpreter

    if not (hasattr(interpreter, "_patch_lang") and hasattr(interpreter, "GridExecutor")):
        return
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    done = set()

    def patch_once(function):
        if id(function.__globals__) in done:
            return None
        done.add(id(function.__globals__))
        return patch(function)

    def launch_anew(self, *args, **kwargs):
        done.clear()  # at its end the launch before took back what it had replaced
        return launch(self, *args, **kwargs)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_once, launch_anew


def make_types_once():
    """Spare Triton's interpreter a third of what is left.

    For every number that a kernel computes it makes the type and the shape anew, out of a dozen objects. They depend on
    nothing but the type's name, so they are made once for each and copied. Pointers, of which there are few, are not.
    """
    from triton.language import core
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_get_np_dtype"):
        return

    def is_plain(kind):
        return type(getattr(kind, "scalar", None)) is core.dtype

    block, tensor, numpy_type = core.block_type.__init__, core.tensor.__init__, interpreter._get_np_dtype
    blocks, shapes, tensors, numpy_types = {}, {}, {}, {}

    def make_block(self, element_ty, shape):
        sizes = tuple(getattr(size, "value", size) for size in shape)
        if type(element_ty) is not core.dtype:
            block(self, element_ty, shape)
            self.shape = shapes.setdefault(sizes, self.shape)
            return
        key = (element_ty.name, *sizes)
        if key not in blocks:
            block(self, element_ty, shape)
            self.shape = shapes.setdefault(sizes, self.shape)  # so that equal shapes are one
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])
        return

    def make_tensor(self, handle, type):
        if not is_plain(type):
            return tensor(self, handle, type)
        if type.name not in tensors:
            tensor(self, handle, type)
            tensors[type.name] = dict(vars(self))
        vars(self).update(tensors[type.name], handle=handle)
        return None

    def find_numpy_type(kind):
        if not is_plain(kind):
            return numpy_type(kind)
        if kind.name not in numpy_types:
            numpy_types[kind.name] = numpy_type(kind)
        return numpy_types[kind.name]

    core.block_type.__init__, core.tensor.__init__ = make_block, make_tensor
    interpreter._get_np_dtype = find_numpy_type


def look_up_what_two_numbers_become():
    """Spare Triton's interpreter half of the rest: what it finds out before it computes anything.

    Which type two numbers have together depends on the names of their types; blocks of one shape need no others made
    of them; and whether whole numbers overflow is found out in seven steps, then asserted where kernels are debugged
    alone (``device_assert``).
    """
    from triton.language import core, semantic

    if not all(
        hasattr(semantic.TritonSemantic, name)
        for name in ("binary_op_sanitize_overflow_impl", "computation_type_impl", "broadcast_impl_value")
    ):
        return
    meaning = semantic.TritonSemantic
    common, broadcast, check = (
        meaning.computation_type_impl, meaning.broadcast_impl_value, meaning.binary_op_sanitize_overflow_impl,
    )  # fmt: skip
    equal, types = core.dtype.__eq__, {}

    def find_common_type(self, a, a_is_scalar, b, b_is_scalar, div_or_mod):
        key = (a.name, a_is_scalar, b.name, b_is_scalar, div_or_mod)
        if key not in types:
            types[key] = common(self, a, a_is_scalar, b, b_is_scalar, div_or_mod)
        return types[key]

    def bring_to_one_shape(self, lhs, rhs):
        if getattr(lhs.type, "shape", None) is getattr(rhs.type, "shape", None):  # blocks of one shape, or two scalars
            return lhs, rhs
        return broadcast(self, lhs, rhs)

    def check_overflow(self, lhs, rhs, binary_op):
        if self.builder.options.debug:
            check(self, lhs, rhs, binary_op)

    def is_equal(self, other):
        return self is other or equal(self, other)

    meaning.computation_type_impl, meaning.broadcast_impl_value = find_common_type, bring_to_one_shape
    meaning.binary_op_sanitize_overflow_impl, core.dtype.__eq__ = check_overflow, is_equal


# Inductor would build and start a program for every instruction set that this processor has, in every process.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# It would also start processes to compile in, each of which imports torch first: tests compile too little for that.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
if not torch.cuda.is_available():
    # Read when kernels are decorated, so before anything imports them: without a GPU they run in the interpreter.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if importlib.util.find_spec("triton"):
        patch_language_once_per_launch()
        make_types_once()
        look_up_what_two_numbers_become()

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run tests marked slow")


LONG = ("test_docs.py", "test_deployment.py", "test_implementations.py")
"""Files with tests of ten seconds and more: begun first, so that none is left to one process at the end."""


def pytest_collection_modifyitems(config, items):
    items.sort(key=lambda item: item.path.name not in LONG)
    for item in items:
        if "slow" in item.keywords and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: pass --slow to run it"))
        if "gpu" in item.keywords and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep what all imports make out of the collection of garbage, which torch asks for whenever it compiles."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # libraries would take for a leak what is still there when Python ends


_crashed: set[str] = set()


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem, report, sched):
    """Run a test whose process ended under it once more, in a new one; a second time it fails.

    Libraries with threads of their own may crash or hang once in many runs (gloo did, until tests ended its processes
    their own way: ``tests/two_processes.py``). One such moment should cost minutes and be told ("1 rerun", and above it
    where every thread stood), not fail all.
    """
    if crashitem not in _crashed:
        _crashed.add(crashitem)
        report.outcome = "rerun"
        sched.mark_test_pending(crashitem)


def pytest_terminal_summary(terminalreporter):
    """Name the tests that were run again, so that none is without the run saying so."""
    if _crashed:
        terminalreporter.section("run again because their process crashed", yellow=True)
        for one in sorted(_crashed):
            terminalreporter.line(one)


@pytest.fixture(autouse=True)
def _same_start():
    torch.manual_seed(0)
    # torch.compile switches the validation of distributions off for the whole process.
    torch.distributions.Distribution.set_default_validate_args(True)


@pytest.fixture
def shared():
    """Folder of published reference data; tests that need it skip where it is missing."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared folder with reference data beside this checkout")
    return SHARED
