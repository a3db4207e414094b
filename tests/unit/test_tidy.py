"""Limits and habits of the code that no linter checks."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kit.cases import each_of
from tests.unit.sources import PACKAGES, ROOT, code_of, files, is_generated, module_name, relative, statements

if TYPE_CHECKING:
    from pathlib import Path

# A guide says about 400 lines a file (CONTRIBUTING); a coordinator may have up to this many.
MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60

ALL = files(*PACKAGES, "tests", "benchmarks", "examples")
PACKAGE_FILES = files(*PACKAGES)

# Names that each package may have.
EACH_PACKAGE = ("__init__", "__main__")

# A module that decides less often than this needs no unit test of its own.
FEW_BRANCHES = 5
_BRANCHES = (ast.If, ast.For, ast.While, ast.Try, ast.IfExp, ast.comprehension, ast.BoolOp)
_BRANCH = re.compile(r"^[ \t]*(?:if|elif|for|while|try)\b", re.MULTILINE)

# The tests of modules that have no unit test of their own. Such a module brings others together, or deals with
# processes, terminals or Spark; so the tests of what it is made for are the honest ones.
TESTED_ELSEWHERE: dict[str, str] = {
    "conformance/test_closing.py": "ipcbus/context_closing.py",
    "conformance/test_waiting.py": "ipcbus/runtime/loop/loop_tasks.py",
    "conformance/test_damage.py": "ipcbus/transport/ring/ring_receiver.py ipcbus/transport/ring/topic_lines.py",
    "conformance/test_gmd_acknowledging.py": "ipcbus/dead_letters.py ipcbus/runtime/sending/ack_inlet.pyx",
    "conformance/test_gmd.py": (
        "ipcbus/runtime/receiving/gmd_reception.py "
        "ipcbus/runtime/sending/guaranteed_source.py ipcbus/runtime/sending/guaranteed_sources.py"
    ),
    "conformance/test_leases.py": "ipcbus/delivery/leasing.pyx ipcbus/lease.py",
    "conformance/test_late_join.py": (
        "ipcbus/runtime/receiving/topic_recoveries.py ipcbus/runtime/sending/retentions.py"
    ),
    "property/test_share_queue.py": (
        "ipcbus/shares/share_queue.py ipcbus/shares/share_member.py ipcbus/wire/share_messages.py"
    ),
    "conformance/test_shares.py": (
        "ipcbus/runtime/receiving/receptions.py ipcbus/runtime/receiving/share_reception.py"
    ),
    "unit/ipcbus/reliability/test_stream.py": (
        "ipcbus/reliability/stream_receiver.py ipcbus/reliability/stream_sender.py"
    ),
    "system/test_cli.py": "tools/commands/bench_command.py",
    "system/test_tls.py": "ipcbus/transport/tcp/tcp_plan.py",
    "system/test_fallback_over_tcp.py": "ipcbus/transport/twin_plan.py",
    "unit/ipcbus/config/test_network_key.py": "ipcbus/config/secret_file.py",
    "system/test_tcp_faults.py": "ipcbus/transport/tcp/stream_port.py",
    "conformance/test_requests.py": (
        "ipcbus/runtime/receiving/receiver_channels.py ipcbus/runtime/receiving/response_sessions.py "
        "ipcbus/runtime/receiving/responses.py ipcbus/runtime/sending/asking.pyx "
        "ipcbus/runtime/sending/response_taker.pyx"
    ),
    "conformance/test_udp_limits.py": "ipcbus/transport/udp/udp_plan.py",
    "conformance/test_wait_for_joining.py": "ipcbus/wait_for_joining.py",
    "sim/test_archive.py": "ipcbus/archive/recovery.py",
    "spark/test_feeds_to_parquet.py": "ipcbus/spark/pipelines/exchange_feed.py",
    "spark/test_pipeline_audit.py": "ipcbus/spark/pipelines/sequence_runs.py",
    "spark/test_pipeline_counts.py": "ipcbus/spark/pipelines/latency.py ipcbus/spark/pipelines/row_columns.py",
    "spark/test_pipeline_streams.py": "ipcbus/spark/pipelines/compact.py",
    "system/test_cli_numbers.py": "tools/commands/list_command.py",
    "system/test_cli_requests.py": "tools/commands/request_command.py tools/commands/respond_command.py",
    "system/test_cli_processes.py": (
        "tools/commands/demo_command.py tools/commands/pub_command.py tools/demo/demo_report.py"
    ),
    "system/test_doctor.py": (
        "ipcbus/resolution/local/stale_objects.py "
        "tools/doctor/bus_checks.py "
        "tools/doctor/host_checks.py "
        "tools/doctor/kernel_checks.py"
    ),
    "system/test_export.py": "tools/commands/export_command.py tools/metrics/metrics_server.py",
    "system/test_gmd_agent.py": "tools/commands/gmd_agent_command.py tools/gmd_agent.py",
    "system/test_feeds.py": "tools/commands/replay_command.py",
    "system/test_monitor.py": "tools/commands/monitor_command.py",
    "system/test_recording_feeds.py": "tools/replay/replay_archive.py",
    "system/test_resolver.py": "tools/commands/resolver_command.py",
    "system/test_top.py": "tools/commands/top_command.py tools/top/live_view.py",
    "unit/ipcbus/archive/test_log.py": "ipcbus/archive/segments.py",
    "unit/ipcbus/archive/test_log_writer.py": "ipcbus/archive/log_names.py ipcbus/archive/segment_writer.py",
    "unit/ipcbus/archive/test_recorder.py": "ipcbus/archive/writer_thread.py",
    "unit/ipcbus/archive/test_retention.py": "ipcbus/archive/cursors.py",
    "unit/ipcbus/archive/test_verify_hostile.py": "ipcbus/archive/blocks.py",
    "unit/ipcbus/gmd/test_acknowledgement_file.py": "ipcbus/gmd/acknowledgement_appender.pyx",
    "unit/ipcbus/gmd/test_file_area.py": (
        "ipcbus/gmd/area_identity.py ipcbus/gmd/area_opening.py "
        "ipcbus/gmd/copy_area.pyx ipcbus/gmd/journal_appender.pyx"
    ),
    "unit/ipcbus/resolution/local/test_registry.py": "ipcbus/resolution/local/adverts.py",
    "unit/tools/commands/test_gmd_command.py": "ipcbus/gmd/area_inspection.py tools/render/gmd_output.py",
    "unit/ipcbus/storage/test_files.py": "ipcbus/storage/file_calls.pyx",
    "unit/ipcbus/spark/pipelines/test_report_html.py": (
        "ipcbus/spark/pipelines/report_data.py ipcbus/spark/pipelines/report_plots.py"
    ),
    "unit/ipcbus/spark/test_batch_reader.py": "ipcbus/spark/partitions.py ipcbus/spark/pushed_filters.py",
    "unit/ipcbus/spark/test_read_options.py": "ipcbus/spark/option_parsers.py",
    "unit/ipcbus/spark/test_stream_reader.py": "ipcbus/spark/read_positions.py",
    "unit/ipcbus/stats/test_serialization.py": "ipcbus/stats/compat.py",
    "unit/ipcbus/stats/test_snapshot_live.py": "ipcbus/stats/snapshot_model.py",
    "unit/ipcbus/transport/test_sending_session.py": "ipcbus/transport/receiving_session.py",
    "unit/ipcbus/transport/udp/test_datagram_socket.py": "ipcbus/transport/udp/mmsg.pyx",
    "unit/ipcbus/test_queue_items.py": "ipcbus/flat_values.pyx",
    "unit/ringbuf/test_channel.py": "ringbuf/headers.pyx",
    "unit/ringbuf/test_layout.py": "ringbuf/codegen.py",
    "unit/tools/commands/test_archive_command.py": "tools/render/archive_output.py",
    "unit/tools/commands/test_pipeline_command.py": (
        "tools/pipeline/pipeline_output.py tools/pipeline/pipeline_run.py"
    ),
    "unit/tools/completion/test_shell_completion.py": "tools/completion/candidates.py",
    "unit/tools/pipeline/test_spark_job.py": "ipcbus/spark/launcher.py tools/pipeline/job_progress.py",
    "unit/tools/top/test_screen.py": (
        "tools/top/charts.py tools/top/details.py tools/top/message_view.py tools/top/panes.py"
    ),
    "unit/tools/top/test_view_over_udp.py": "tools/render/udp_text.py",
}

PICKLES = "ipcbus/queue_items.py"
"""The one module that may; what it unpickles is signed (docs/decisions/0041-queue-pickle.md)."""

# Put together, so that this file does not find itself.
_UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
_BANNED = re.compile(r"^[ \t]*assert\b.*|^.*\bpickle\b.*|^.*\btime\.sleep\b.*", re.MULTILINE)
_CYTHON_FUNCTION = re.compile(r"^([ \t]*)(?:cpdef|cdef(?![ \t]+class\b)|(?:async[ \t]+)?def)\b[^=\n]*\(")


def python_functions(text: str) -> dict[str, int]:
    """Lines of every function of a Python source, without decorators and docstring."""
    lengths = {}
    for node in statements(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            start = node.lineno
            if ast.get_docstring(node) is not None and first.end_lineno is not None:
                start += first.end_lineno - first.lineno + 1
            lengths[f"{node.name}:{node.lineno}"] = (node.end_lineno or start) - start + 1
    return lengths


def cython_functions(text: str) -> dict[str, int]:
    """Lines with code of every function of a Cython source, by indentation."""
    lines = code_of(text).splitlines()
    lengths = {}
    for number, line in enumerate(lines):
        head = _CYTHON_FUNCTION.match(line)
        if head is None:
            continue
        length = 1
        for follower in lines[number + 1 :]:
            stripped = follower.lstrip()
            if not stripped:
                continue
            # The closing bracket of a long parameter list stands at the indentation of the function.
            if len(follower) - len(stripped) <= len(head[1]) and not stripped.startswith(")"):
                break
            length += 1
        lengths[f"{line.strip()}:{number + 1}"] = length
    return lengths


def has_long_block(text: str) -> bool:
    """Whether the lines of a function, those without code too, may be too many: only then is its source parsed."""
    begun: list[tuple[int, int]] = []
    for number, line in enumerate([*code_of(text).splitlines(), "end"]):
        stripped = line.lstrip()
        # The closing bracket of a long parameter list stands at the indentation of the function.
        if not stripped or stripped.startswith(")"):
            continue
        indent = len(line) - len(stripped)
        while begun and indent <= begun[-1][0]:
            # The lines between two functions count too: comments and the ends of texts look like them.
            if number - begun.pop()[1] > MAX_FUNCTION_LINES:
                return True
        if stripped.startswith(("def ", "async def ")):
            begun.append((indent, number))
    return False


# One test a rule, not one a file: a thousand small ones would cost more than they look at.
def too_long(path: Path) -> dict[str, int]:
    """What exceeds its limit in a source, with its lines."""
    text = path.read_text()
    if path.suffix in (".pyx", ".pxd"):
        functions = cython_functions(text)
    else:
        functions = python_functions(text) if has_long_block(text) else {}
    found = {name: lines for name, lines in functions.items() if lines > MAX_FUNCTION_LINES}
    lines = len(text.splitlines())
    return found if is_generated(path) or lines <= MAX_FILE_LINES else {"the file": lines, **found}


def test_size() -> None:
    assert not {relative(path): found for path in ALL if (found := too_long(path))}


def test_file_names_are_unique() -> None:
    modules = {module_name(path) for path in PACKAGE_FILES if path.stem not in EACH_PACKAGE}
    names = Counter(name.rpartition(".")[2] for name in modules)
    assert not {name: count for name, count in names.items() if count > 1}


def branches(path: Path) -> int:
    """The places of a module where the code decides something; tables, options and plain data have none."""
    text = path.read_text()
    if path.suffix != ".py":
        return len(_BRANCH.findall(code_of(text)))
    return sum(isinstance(node, _BRANCHES) for node in ast.walk(ast.parse(text)))


def has_mirror(path: Path) -> bool:
    """Whether a unit test in the place that mirrors the module's has its name, or one that begins with it."""
    folder = (ROOT / "tests" / "unit" / relative(path)).parent
    return (folder / f"test_{path.stem}.py").exists() or any(folder.glob(f"test_{path.stem}_*.py"))


def test_each_module_with_logic_has_a_unit_test_in_the_same_place() -> None:
    modules = [path for path in PACKAGE_FILES if path.suffix in (".py", ".pyx") and path.stem not in EACH_PACKAGE]
    missing = {relative(path) for path in modules if not has_mirror(path) and branches(path) > FEW_BRANCHES}
    missing |= {relative(path) for path in modules if "ipcbus/runtime/" in relative(path) and not has_mirror(path)}
    elsewhere = {module for each in TESTED_ELSEWHERE.values() for module in each.split()}
    assert missing - elsewhere == set(), "write a unit test, or say in TESTED_ELSEWHERE where the tests are"
    assert elsewhere - missing == set(), "take it out of TESTED_ELSEWHERE: it has its own test, no logic, or is gone"
    assert [tests for tests in TESTED_ELSEWHERE if not (ROOT / "tests" / tests).exists()] == []


def test_nothing_unfinished() -> None:
    assert not {relative(path): found for path in ALL if (found := _UNFINISHED.findall(path.read_text()))}


# Assertions vanish under -O, unpickling runs what a peer sends, and a sleep waits for nothing in particular.
def test_no_assert_pickle_or_sleep() -> None:
    found = {relative(path): _BANNED.findall(code_of(path.read_text())) for path in PACKAGE_FILES}
    assert [line for line in found.pop(PICKLES) if "pickle" not in line] == []
    assert not {path: lines for path, lines in found.items() if lines}


@each_of("path", files(*PACKAGES, suffixes=(".pyx",)), ids=relative)
def test_compiled_module_has_declarations_and_types(path: Path) -> None:
    assert path.with_suffix(".pxd").exists()
    assert path.with_suffix(".pyi").exists()


def test_project_file_lists_every_package_and_extension() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {module_name(path) for path in PACKAGE_FILES if path.name == "__init__.py"}
    assert set(setuptools["packages"]) == packages | {"pyspark_ipcbus"}
    assert setuptools["package-dir"]["pyspark_ipcbus"] == "ipcbus/spark/discovery"
    extensions = {module_name(path): [relative(path)] for path in files(*PACKAGES, suffixes=(".pyx",))}
    assert {row["name"]: row["sources"] for row in setuptools["ext-modules"]} == extensions


def test_mypy_sees_the_tools_under_their_installed_name() -> None:
    assert (ROOT / "typings" / PACKAGES["tools"]).resolve() == ROOT / "tools"


def test_what_is_too_long_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "long.py"
    path.write_text("def f():\n" + "    pass\n" * MAX_FILE_LINES)
    assert too_long(path) == {"the file": MAX_FILE_LINES + 1, "f:1": MAX_FILE_LINES + 1}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def f():\n    pass\n", 2),
        ("def f():\n    '''One.\n\n    Two.\n    '''\n    return 1\n", 2),
        ("@cache\ndef f(\n    a,\n):\n    return 1\n", 4),
    ],
)
def test_python_function_is_measured(text: str, lines: int) -> None:
    assert list(python_functions(text).values()) == [lines]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("cdef int f(int a) noexcept nogil:\n    # why\n\n    return 1\nx = 1\n", 2),
        ("cdef int f(\n    int a,\n) except -1:\n    return 1\n", 4),
        ("cdef class A:\n    cpdef g(self):\n        return 1\n    def h(self):\n        pass\n", 2),
    ],
)
def test_cython_function_is_measured(text: str, lines: int) -> None:
    assert set(cython_functions(text).values()) == {lines}


@each_of(
    "line",
    ["    assert x", "import pickle", "from pickle import loads", "time.sleep(1)", "x = pickle.dumps(y)"],
)
def test_banned_line_is_seen(line: str) -> None:
    assert _BANNED.findall(code_of(f"x = 1\n{line}\n"))


@each_of("line", ["_Static_assert(1)", "# assert x", '"""time.sleep"""', "assertion = 1"])
def test_harmless_line_is_fine(line: str) -> None:
    assert not _BANNED.findall(code_of(f"x = 1\n{line}\n"))


def test_nothing_promises_a_package_that_is_not_published() -> None:
    """It is installed from a clone (docs/how-to/install.md)."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *ALL]
    wrong = re.compile(r"pip install [^\n`#;,]*\bipc" + r"bus\b")
    found = [relative(path) for path in pages if wrong.search(path.read_text())]
    assert found == []
