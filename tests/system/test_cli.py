"""The command line in this process, through click's runner."""

from __future__ import annotations

import json
import os
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import ipcbus
from ipcbus_tools.cli import COMMANDS, cli
from tests.kit.bus import GIVE_UP_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from click.testing import Result

    from ipcbus import Context, Message, Receiver, Source


def run(*arguments: str, stdin: bytes | None = None) -> Result:
    """Runs `ipcbus` with these arguments."""
    return CliRunner().invoke(cli, arguments, input=stdin)


def facts(result: Result) -> Any:  # noqa: ANN401 - JSON
    """What a command with --json has printed."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def lines(result: Result) -> list[dict[str, Any]]:
    """What `echo --json` has printed."""
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def take(receiver: Receiver, count: int) -> list[Message]:
    """So many messages and events."""
    got: list[Message] = []
    while len(got) < count:
        more = receiver.receive_many(count - len(got), GIVE_UP_S)
        assert more, f"{len(got)} of {count} messages came"
        got += more
    return got


@pytest.fixture
def context(domain: str) -> Iterator[Context]:
    with ipcbus.Context(domain=domain, name="test") as found:
        yield found


@pytest.fixture
def sending(context: Context) -> Iterator[Callable[[str, list[bytes]], Source]]:
    """Sends messages on a topic as soon as somebody receives it."""
    threads: list[threading.Thread] = []

    def start(topic: str, messages: list[bytes]) -> Source:
        source = context.source(topic)

        def send() -> None:
            source.wait_for_receivers(1, GIVE_UP_S)
            source.send_many(messages, flush=True)

        threads.append(threading.Thread(target=send))
        threads[-1].start()
        return source

    yield start
    for thread in threads:
        thread.join()


# ---------------------------------------------------------------------- help and wrong use


def test_help_names_the_commands() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in ("pub", "echo", "list", "replay", "demo"):
        assert f"\n  {name} " in result.output
    assert "demo-receiver" not in result.output
    assert "bench-receiver" not in result.output


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in COMMANDS
        if not name.endswith("-receiver")
        and name not in ("completion", "config", "resolver", "archive", "gmd", "pipeline")
    ],
)
def test_help_of_each_command_has_examples_and_the_common_options(name: str) -> None:
    result = run(name, "-h")
    assert result.exit_code == 0
    assert re.search(rf"^  Examples?:\n    ipcbus {name}\b", result.output, re.MULTILINE)
    assert {"--domain", "--config", "--json"} <= set(result.output.split())


def test_version() -> None:
    assert ipcbus.__version__ in run("--version").output


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["lits"], "did you mean list?"),
        (["something"], "see 'ipcbus --help'"),
        (
            ["pub", "t", "x", "--transport", "udp"],
            "lbtrm, lbttcp, tcp; did you mean lbtru, or lbtrm",
        ),
        (["pub", "t" * 256, "x"], "is not a valid name"),
        (["list", "--config", "/does/not/exist.toml"], "cannot be read"),
        (["echo", "t", "--config", "/does/not/exist.toml"], "cannot be read"),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(arguments: list[str], text: str, domain: str) -> None:
    result = run(*arguments, *([] if len(arguments) == 1 else ["--domain", domain]))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert text in result.stderr
    assert result.stderr.count("\n") == 1


def test_option_of_the_wrong_scope_names_it(domain: str, tmp_path: Path) -> None:
    config = tmp_path / "bus.toml"
    config.write_text("[receiver]\ntransport = 'lbtsmx'\n")
    result = run("pub", "t", "x", "--domain", domain, "--config", str(config))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "scope source" in result.stderr


# ---------------------------------------------------------------------- pub


def test_pub_arguments(domain: str, context: Context) -> None:
    receiver = context.receiver("t")
    found = facts(run("pub", "t", "one", "zwölf", "", "--repeat", "2", "--domain", domain, "--json"))
    assert (found["topic"], found["messages"], found["bytes"]) == ("t", 6, 2 * (3 + 6))
    got = take(receiver, 8)
    assert [message.type.name for message in got] == ["BOS", *["DATA"] * 6, "EOS"]
    assert [message.data.decode() for message in got[1:7]] == ["one", "zwölf", ""] * 2
    assert got[0].source == found["source"]


def test_pub_stdin_byte_for_byte(domain: str, context: Context) -> None:
    receiver = context.receiver("t")
    found = facts(run("pub", "t", "--domain", domain, "--json", stdin=b"first\n\n\xff\x00 raw\nno newline"))
    assert found["messages"] == 4
    got = take(receiver, 5)
    assert [message.data for message in got] == [b"", b"first", b"", b"\xff\x00 raw", b"no newline"]


def test_pub_uses_transport_and_config(domain: str, context: Context, tmp_path: Path) -> None:
    context.receiver("t")
    config = tmp_path / "bus.toml"
    config.write_text("[source]\ntransport = 'lbtsmx'\ntransport_lbtsmx_id = 99\ntransport_lbtipc_id = 98\n")
    arguments = ("pub", "t", "x", "--domain", domain, "--json", "--config", str(config))
    assert facts(run(*arguments))["source"].endswith(":99")
    found = facts(run(*arguments, "--transport", "LBT-IPC"))["source"]
    assert found.startswith("LBT-IPC:")
    assert found.endswith(":98")


def test_pub_without_receivers_says_so(domain: str) -> None:
    result = run("pub", "t", "x", "--timeout", "0.05", "--domain", domain)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: topic 't': 0 of 1 receiving contexts had joined")
    assert result.stderr.endswith("; --wait-receivers 0 sends without receivers\n")
    assert result.stdout == ""


def test_pub_need_not_wait(domain: str) -> None:
    assert facts(run("pub", "t", "x", "--wait-receivers", "0", "--domain", domain, "--json"))["messages"] == 1


def test_pub_at_an_interval(domain: str, context: Context) -> None:
    receiver = context.receiver("t")
    arguments = ("pub", "t", "x", "--repeat", "3", "--interval", "0.01", "--domain", domain, "--json")
    assert facts(run(*arguments))["seconds"] >= 0.02
    got = take(receiver, 4)
    assert [message.data for message in got] == [b"", b"x", b"x", b"x"]


def test_pub_of_files_and_lines_up_to_a_count(domain: str, context: Context, tmp_path: Path) -> None:
    file = tmp_path / "content"
    file.write_bytes(b"two\nlines\xff")
    receiver = context.receiver("t", events=False)
    sent = ("pub", "t", "a", "--file", str(file), "--domain", domain)
    assert facts(run(*sent, "--stdin-lines", "--json", stdin=b"x\ny\nz\n"))["messages"] == 5
    assert [message.data for message in take(receiver, 5)] == [b"a", b"two\nlines\xff", b"x", b"y", b"z"]
    assert facts(run(*sent, "--count", "3", "--json"))["messages"] == 3
    assert [message.data for message in take(receiver, 3)] == [b"a", b"two\nlines\xff", b"a"]
    assert facts(run("pub", "t", "--count", "2", "--domain", domain, "--json", stdin=b"x\ny\nz\n"))["messages"] == 2
    assert facts(run("pub", "t", "--file", "-", "--domain", domain, "--json", stdin=b"x\ny\n"))["messages"] == 1
    assert [message.data for message in take(receiver, 3)] == [b"x", b"y", b"x\ny\n"]


def test_pub_keeps_a_rate_on_the_average(domain: str, context: Context) -> None:
    receiver = context.receiver("t", events=False)
    found = facts(run("pub", "t", "x", "--rate", "1000", "--count", "300", "--domain", domain, "--json"))
    assert found["messages"] == 300
    assert found["seconds"] >= 0.299
    assert len(take(receiver, 300)) == 300


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--rate", "5", "--interval", "1"), "--rate and --interval both say when"),
        (("--file", "-", "--stdin-lines"), "both read stdin"),
        (("--file", "/does/not/exist"), "does not exist"),
        (("--rate", "0"), "--rate"),
        (("--count", "0"), "--count"),
    ],
)
def test_pub_of_what_contradicts_itself(domain: str, options: tuple[str, ...], text: str) -> None:
    result = run("pub", "t", "x", *options, "--domain", domain)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


# ---------------------------------------------------------------------- echo


def test_echo_json(domain: str, sending: Callable[[str, list[bytes]], Source]) -> None:
    source = sending("t", [b"text", b"", b"\xff\x00"])
    begin, *messages = lines(run("echo", "t", "-n", "3", "--json", "--domain", domain))
    assert (begin["type"], begin["topic"], begin["source"]) == ("BOS", "t", source.source)
    assert "length" not in begin
    assert [message.get("data") for message in messages] == ["text", "", None]
    assert messages[2]["hex"] == "ff00"
    assert [message["sequence_number"] for message in messages] == [0, 1, 2]
    assert [message["length"] for message in messages] == [4, 0, 2]
    assert all(message["send_time_ns"] > 10**18 for message in messages)


def test_echo_hex(domain: str, sending: Callable[[str, list[bytes]], Source]) -> None:
    sending("t", [bytes(range(60, 80))])
    result = run("echo", "t", "-n", "1", "--hex", "--domain", domain)
    assert "20 bytes\n    000000  3c 3d 3e" in result.stdout
    assert "<=>?@ABCDEFGHIJK\n    000010  4c 4d 4e 4f" in result.stdout
    assert result.stdout.endswith("LMNO\n")
    sending("u", [b"text"])
    assert lines(run("echo", "u", "-n", "1", "--hex", "--json", "--domain", domain))[-1]["hex"] == "74657874"


def test_echo_lines_for_people(domain: str, sending: Callable[[str, list[bytes]], Source]) -> None:
    source = sending("t", [b"good morning", b"\x1b[31mred"])
    result = run("echo", "t", "-n", "2", "--domain", domain)
    begin, first, second = result.stdout.splitlines()
    assert begin == f"-- BOS  t  {source.source}"
    assert first.split()[0] == "0"
    assert first.endswith("  good morning")
    assert second.endswith("  \\x1b[31mred")


def test_echo_of_a_pattern_in_a_format(domain: str, context: Context) -> None:
    sources = [context.source(topic, late_join=1) for topic in ("quotes.A", "quotes.B", "other")]
    for number, source in enumerate(sources):
        source.send(b"price %d" % number, flush=True)
    form = ("--format", r"%t %s %d\t%l", "--pattern", "-n", "2", "--domain", domain)
    assert sorted(run("echo", r"quotes\..*", *form).stdout.splitlines()) == [
        "quotes.A 0 price 0\t7",
        "quotes.B 0 price 1\t7",
    ]
    with_topics = run("echo", r"quotes\..*", "--pattern", "--no-events", "-n", "2", "--domain", domain).stdout
    assert sorted(line.split()[2:] for line in with_topics.splitlines()) == [
        ["quotes.A", "price", "0"],
        ["quotes.B", "price", "1"],
    ]


def test_echo_of_the_last_messages(domain: str, context: Context) -> None:
    source = context.source("t", late_join=1)
    for number in range(20):
        source.send(b"\x01%c" % number, flush=True)
    last = run("echo", "t", "-n", "3", "--last", "--fields", "kind:B,number:b", "--no-events", "--domain", domain)
    assert [line.split()[2:] for line in last.stdout.splitlines()] == [
        ["kind=1", f"number={number}"] for number in (17, 18, 19)
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--last",), "give -n N, too"),
        (("--pretty", "--hex"), "--hex, --pretty: these options exclude each other"),
        (("--json", "--format", "%d"), "--json, --format: these options exclude each other"),
        (("--format", "%q"), "'%q'; give one of: %t topic"),
        (("--fields", "x"), "write NAME:LETTER"),
        (("--pattern",), "invalid regular expression"),
    ],
)
def test_echo_of_what_contradicts_itself(domain: str, options: tuple[str, ...], text: str) -> None:
    result = run("echo", "(", *options, "--domain", domain)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


def test_echo_gives_up(domain: str, sending: Callable[[str, list[bytes]], Source]) -> None:
    sending("t", [b"one"])
    result = run("echo", "t", "-n", "2", "--timeout", "0.3", "--domain", domain)
    assert result.exit_code == 1
    assert "of 2 messages came, then no message for 0.3 s" in result.stderr
    assert run("echo", "nobody", "--timeout", "0.05", "--domain", domain).exit_code == 1


def test_echo_ends_well_when_something_came(domain: str, sending: Callable[[str, list[bytes]], Source]) -> None:
    sending("t", [b"one"])
    assert run("echo", "t", "--timeout", "1.5", "--domain", domain).exit_code == 0


# ---------------------------------------------------------------------- bench


@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx", "lbtru"])
def test_bench_measures_two_processes(domain: str, transport: str) -> None:
    found = facts(
        run("bench", "--transport", transport, "--count", "500", "--trips", "5", "--domain", domain, "--json")
    )
    assert (found["size"], found["messages"] + found["lost"]) == (64, 500)
    assert found["messages_per_second"] > 0
    assert 0 < found["round_trip_p50_ns"] <= found["round_trip_p99_ns"]


def test_bench_prints_an_error_once(domain: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = run("bench", "--transport", "tpc", "--domain", domain)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: option transport (scope source) = 'tpc': it must be one of lbtipc, ")
    assert result.stderr.count("error") == 1
    assert capfd.readouterr() == ("", "")  # nor did a second process


def test_bench_prints_one_line(domain: str) -> None:
    result = run("bench", "--count", "50", "--trips", "2", "--size", "100", "--domain", domain)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    assert re.fullmatch(r"LBT-IPC:\S+, 100 bytes: [\d,]+ messages/s, \S+ \S+/s, 0 lost; round trip .*, p99 .*", line)


# ---------------------------------------------------------------------- list


def test_list_live_is_top(domain: str, context: Context) -> None:
    context.source("t")
    assert run("list", "--live", "--all").exit_code == 2
    result = CliRunner().invoke(cli, ["list", "--live", "--domain", domain], input="")
    assert (result.exit_code, result.stdout) == (
        (other := CliRunner().invoke(cli, ["top", "--domain", domain], input="")).exit_code,
        other.stdout,
    )


def test_list_of_nothing(domain: str) -> None:
    assert f"no context runs in domain '{domain}'" in run("list", "--domain", domain).stdout
    assert facts(run("list", "--domain", domain, "--json"))["contexts"] == []


def test_list_shows_who_does_what(domain: str, context: Context) -> None:
    context.receiver("a [bold]topic")
    source = context.source("a [bold]topic", transport="lbtsmx")
    source.wait_for_receivers(1, GIVE_UP_S)
    source.send(b"12345")
    short, full = (run("list", *more, "--domain", domain).stdout for more in ((), ("-v",)))
    for text in (f"domain {domain}", "a [bold]topic", source.source, "test"):
        assert text in short
    assert "receiver_paced" not in short
    assert "receiver_paced" in full
    assert "parked" in full or "reads" in full
    found = facts(run("list", "--domain", domain, "--json"))
    (only,) = found["contexts"]
    assert only["sessions"][0]["sources"][0]["counters"]["lbm_msgs_sent"] == 1
    assert only["receivers"][0]["topic"] == "a [bold]topic"


def test_list_shows_what_is_a_pattern(domain: str, context: Context) -> None:
    context.receiver("quotes.A")
    assert "wildcard" not in run("list", "--domain", domain).stdout
    context.wildcard_receiver(r"quotes\..*")
    lines = run("list", "--domain", domain).stdout.splitlines()
    assert ["wildcard" in line for line in lines if "quotes" in line] == [False, True]
    (only,) = facts(run("list", "--domain", domain, "--json"))["contexts"]
    assert [(each["topic"], each["wildcard"]) for each in only["receivers"]] == [
        ("quotes.A", False),
        (r"quotes\..*", True),
    ]


def test_domain_of_a_registry_does_nothing_to_the_terminal(domain: str) -> None:
    with ipcbus.Context(domain=f"{domain}\x1b]0;b\x07"):
        shown = run("list", "--all").stdout
    assert f"domain {domain}\\x1b]0;b\\x07" in shown
    assert "\x1b" not in shown


def test_list_of_all_domains(domain: str, context: Context) -> None:
    assert not context.name.startswith(domain)
    assert domain in run("list", "--all").stdout
    assert domain in [found["domain"] for found in facts(run("list", "--all", "--json"))]


# ---------------------------------------------------------------------- replay


def test_replay_text(domain: str, context: Context, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(500)))
    receiver = context.receiver("log")
    found = facts(run("replay", str(file), "--topic", "log", "--wait-receivers", "1", "--domain", domain, "--json"))
    assert (found["messages"], found["complete"], found["everything_read"]) == (500, True, True)
    assert found["topics"] == {"log": 500}
    got = [message.data for message in receiver.receive_many(502, GIVE_UP_S) if message.data]
    assert got == [b"line %d" % number for number in range(500)]


def test_replay_counts_messages_in_pieces_once(domain: str, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(bytes([32]) * 300_000 + b"\nshort\n")
    found = facts(run("replay", str(file), "--topic", "log", "--wait-receivers", "0", "--domain", domain, "--json"))
    assert (found["messages"], found["topics"]) == (2, {"log": 2})


@pytest.mark.parametrize("transport", ["lbtipc", "lbtsmx"])
def test_replay_capture_at_its_pace(domain: str, context: Context, tmp_path: Path, transport: str) -> None:
    payloads = [b'{"stream":"%s","n":%d,"fill":"%s"}' % (b"ab"[n % 2 :][:1], n, b"x" * n * 1000) for n in range(20)]
    file = tmp_path / "capture"
    file.write_bytes(b"".join(b"%d %s\n" % (10**18 + n * 10_000_000, line) for n, line in enumerate(payloads)))
    got: dict[str, list[bytes]] = {"a": [], "b": []}
    for topic in got:
        context.receiver(topic, lambda message: got[message.topic].append(message.data))
    arguments = ("replay", str(file), "--speed", "2x", "--wait-receivers", "1", "--domain", domain, "--json")
    found = facts(run(*arguments, "--transport", transport))
    assert found["seconds"] >= 0.99 * 19 * 0.010 / 2  # it may begin a little late
    assert found["everything_read"]
    context.close()
    assert {topic: [data for data in messages if data] for topic, messages in got.items()} == {
        "a": payloads[::2],
        "b": payloads[1::2],
    }


def test_replay_for_people(domain: str, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"one\ntwo\n")
    result = run("replay", str(file), "--wait-receivers", "0", "--domain", domain)
    assert result.exit_code == 0
    assert result.stdout.startswith("2 messages, 6 bytes in ")
    assert "msg/s" in result.stdout


@pytest.mark.parametrize(
    ("content", "arguments", "code", "text"),
    [
        (b"", (), 1, "holds no messages"),
        (b"text\n", ("--speed", "real"), 2, "has no time stamps"),
        (b"text\n", ("--speed", "fast"), 2, "give real, max"),
        (b"text\n", ("--speed", "0x"), 2, "give real, max"),
        (b'1 {"a":1}\ntext\n', ("--wait-receivers", "0"), 1, "line 2"),
        (b"text\n", ("--timeout", "0.05"), 1, "0 of 1 receiving contexts"),
    ],
)
def test_replay_refuses(
    domain: str, tmp_path: Path, content: bytes, arguments: tuple[str, ...], code: int, text: str
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    result = run("replay", str(file), "--domain", domain, *arguments)
    assert result.exit_code == code
    assert text in result.stderr


def test_replay_of_no_file(domain: str, tmp_path: Path) -> None:
    result = run("replay", str(tmp_path / "missing"), "--domain", domain)
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_replay_tells_who_has_not_read(domain: str, context: Context, tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x\n" * 10_000)
    context.receiver("feed", receive_queue_maximum=1)  # the rest stays in the ring until somebody takes it
    result = run("replay", str(file), "--wait-receivers", "1", "--linger", "0.05", "--domain", domain, "--json")
    found = facts(result)
    assert (found["complete"], found["everything_read"]) == (True, False)
    assert f"not all receivers have read everything (pid {os.getpid()})" in result.stderr
