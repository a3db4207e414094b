"""`ipcbus top` in a real terminal, beside processes that come, go, and are killed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal as signals
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

import ipcbus
from ipcbus import stats
from tests.kit.tmux import MISSING, Screen
from tests.system.test_cli_processes import started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.kit.peers import Peers

IN_TERMINAL = pytest.mark.skipif(bool(MISSING), reason=MISSING)
NOBODY = 65534
QUICK = "0.2"

pytestmark = pytest.mark.usefixtures("domain")


def top(domain: str, *options: str) -> str:
    """The command line."""
    return shlex.join([sys.executable, "-m", "ipcbus_tools", "top", "--domain", domain, "--interval", QUICK, *options])


@pytest.fixture
def screen(domain: str, tmp_path: Path) -> Iterator[Screen]:
    with Screen(tmp_path, f"{top(domain)}; echo ended $?; stty -a") as shown:
        shown.shows("q quit")
        yield shown


# ---------------------------------------------------------------------- by hand


@IN_TERMINAL
def test_keys(screen: Screen, domain: str, peers: Peers) -> None:
    sender, receiver = peers.several(2)
    source = sender.do("source", topic="quotes.AAPL")
    other = sender.do("source", topic="orders", transport="lbtsmx")
    receiver.do("receiver", topic="quotes.AAPL")
    sender.do("joined", topic="quotes.AAPL")
    sender.do("send", topic="quotes.AAPL", count=1000)
    screen.shows(source)
    screen.shows(f"{source}  1 receiver, 20 slots")
    screen.shows(str(receiver.pid))
    first = screen.until(lambda text: re.search(r"^> ", text, re.MULTILINE), "a chosen line")
    screen.keys("Down").until(lambda text: _chosen(text) != _chosen(first), "the other line")
    screen.keys("Up").until(lambda text: _chosen(text) == _chosen(first), "the first line again")
    screen.keys("s").shows("sort MiB/s")
    screen.keys("L").shows("sort p99")
    screen.keys("L").shows("sort p99 reversed")
    screen.keys("M").shows("sort msg/s")
    screen.keys("f").shows("filter: ")
    screen.type("SMX").lacks(source)
    screen.keys("Enter").shows("'SMX'")
    screen.keys("Escape").shows(source)
    screen.keys("t").until(lambda text: re.search(rf"quotes.AAPL +{source}", text), "the topics")
    screen.keys("t").shows("slots")
    screen.keys("d").shows("counters of the session")
    screen.keys("PageDown", "PageDown").lacks("counters of the session")
    screen.keys("Escape").shows("slots")
    screen.keys("?").shows("this help")
    screen.keys("?").shows("slots")
    screen.keys("p").shows("PAUSED")
    sender.do("end", topic="orders")
    screen.keys("p").lacks("PAUSED")
    screen.lacks(other)
    screen.keys("q").shows("ended 0")


@IN_TERMINAL
def test_messages_without_a_receiver(screen: Screen, domain: str, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="quotes.AAPL")
    screen.shows(source)
    screen.keys("Enter").shows("without a receiver")
    sender.do("send", topic="quotes.AAPL", count=30)
    screen.shows("30 seen")
    (session,) = stats.take_snapshot(domain).sessions
    assert session.receivers == ()
    screen.keys("p").shows("PAUSED")
    screen.keys("p", "Escape").shows("20 slots")
    sender.end()
    screen.lacks(source)
    assert "Traceback" not in screen.text()


@IN_TERMINAL
def test_another_domain(screen: Screen, domain: str, peers: Peers) -> None:
    (sender,) = peers.several(1)
    sender.do("source", topic="here")
    with ipcbus.Context(domain=f"0{domain[1:]}") as context:  # the first one in the list
        source = context.source("there")
        screen.shows(" here ")
        screen.keys("D").shows("this one")
        screen.keys("Home").until(lambda text: re.search(rf"^> {context.domain}", text, re.MULTILINE), "its line")
        screen.keys("Enter").shows(source.source)
        screen.lacks(" here ")


@IN_TERMINAL
@pytest.mark.parametrize("way", ["q", "C-c"])
def test_the_mouse_sorts_and_chooses_and_is_given_back(screen: Screen, peers: Peers, way: str) -> None:
    (sender,) = peers.several(1)
    sources = [
        sender.do("source", topic=topic, transport="lbtsmx", transport_lbtsmx_id=30000 + i)
        for i, topic in enumerate("ab")
    ]
    screen.until(lambda text: all(source in text for source in sources), "both")
    assert reports(screen) == "1"

    def click(column: int, line: int) -> None:
        screen.type(f"\x1b[<0;{column + 1};{line + 1}M\x1b[<0;{column + 1};{line + 1}m")

    text = screen.text().split("\n")
    (line,) = (i for i, each in enumerate(text) if each.startswith("  session "))
    click(text[line].index("p99"), line)
    screen.shows("sort p99")
    click(4, line + 2)
    other = screen.until(lambda text: text.split("\n")[line + 2].startswith("> "), "the second line")
    screen.type("\x1b[<64;5;5M").until(lambda text: _chosen(text) != _chosen(other), "the wheel")
    screen.keys("m").until(lambda _: reports(screen) == "0", "the mouse left to the terminal")
    screen.keys("m").until(lambda _: reports(screen) == "1", "the mouse again")
    screen.keys(way).shows("ended")
    assert reports(screen) == "0"


def reports(screen: Screen) -> str:
    """Whether the terminal sends clicks to the program."""
    return screen._tmux("display-message", "-p", "#{mouse_standard_flag}").strip()


def _chosen(text: str) -> str:
    return next((line.split()[1] for line in text.split("\n") if line.startswith("> ")), "")


@IN_TERMINAL
def test_the_terminal_is_as_before(screen: Screen) -> None:
    screen.keys("q")
    modes = screen.shows("ended 0")
    assert "ipcbus top" not in modes  # the screen of before is back
    modes = screen.shows(" echo ")
    assert re.search(r"(?<!-)icanon", modes)


@IN_TERMINAL
def test_ctrl_c(screen: Screen) -> None:
    screen.keys("C-c").shows("ended 130")
    screen.shows(" echo ")


@IN_TERMINAL
@pytest.mark.parametrize(("signal", "code"), [("HUP", 129), ("QUIT", 131), ("TERM", 143)])
def test_signals_give_the_terminal_back(domain: str, tmp_path: Path, signal: str, code: int) -> None:
    with Screen(tmp_path, f"{top(domain)}; echo ended $?; stty -a") as screen:
        screen.shows("q quit")
        (process,) = (each for each in psutil.Process(screen.pid()).children() if "ipcbus_tools" in each.cmdline())
        os.kill(process.pid, getattr(signals, f"SIG{signal}"))
        screen.shows(f"ended {code}")
        assert re.search(r"(?<!-)icanon", screen.shows(" echo "))


@IN_TERMINAL
def test_sizes(screen: Screen, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="t")
    screen.shows(source)
    for width, height in ((200, 50), (40, 12), (20, 4), (120, 30), (80, 24)):
        screen.resize(width, height)
        if width < 30:
            screen.shows("too small")
            continue

        def filled(text: str, width: int = width, height: int = height) -> bool:
            lines = text.rstrip("\n").split("\n")
            placed = lines[0].startswith("ipcbus top") and "q quit" in lines[-1] and len(lines) == height
            heads = [line for line in lines if line.startswith("  session ")]
            return placed and source in text and len(heads) == 1 and ("user" in heads[0]) == (width == 200)

        screen.until(filled, "the footer on the last line, and the columns that fit")


@IN_TERMINAL
def test_suspended_and_back(domain: str, tmp_path: Path) -> None:
    with Screen(tmp_path, "PS1='shell> ' bash --norc -i") as screen:
        screen.shows("shell>")
        screen.type(top(domain)).keys("Enter").shows("q quit")
        screen.keys("C-z").shows("Stopped")
        screen.type("fg").keys("Enter").shows("q quit")
        screen.keys("q").until(lambda text: text.rstrip().endswith("shell>"), "the shell")


@IN_TERMINAL
def test_ascii_and_without_colour(domain: str, tmp_path: Path, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="t")
    with Screen(
        tmp_path, f"PYTHONIOENCODING=ascii {top(domain)}", LC_ALL="C.UTF-8", NO_COLOR="1", TERM="screen"
    ) as screen:
        assert screen.shows(source).isascii()
        assert "38;5" not in screen._tmux("capture-pane", "-p", "-e")


@IN_TERMINAL
def test_a_terminal_that_can_do_nothing(domain: str, tmp_path: Path) -> None:
    with Screen(tmp_path, f"TERM=dumb {top(domain)}; echo ended $?") as screen:
        assert "cannot place its cursor" in screen.shows("ended 2")


@IN_TERMINAL
def test_back_in_time(screen: Screen, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="t")
    screen.shows(source)
    sender.do("end", topic="t")
    screen.lacks(source)
    for _ in range(300):
        if source in screen.keys("[").shows("snapshots ago"):
            break
    screen.shows(source)
    screen.keys("p").lacks("PAUSED")
    screen.lacks(source)


@IN_TERMINAL
def test_a_recording(domain: str, tmp_path: Path, peers: Peers) -> None:
    (sender,) = peers.several(1)
    log = tmp_path / "log.jsonl"
    source = sender.do("source", topic="t")
    monitor = ("monitor", "--domain", domain, "--interval", "0.05", "--log", str(log))
    with started(*monitor, "-n", "3") as process:
        process.communicate()
    sender.do("end", topic="t")
    with started(*monitor, "-n", "1") as process:
        process.communicate()
    with Screen(tmp_path, f"{top(domain, '--replay', str(log))}; echo ended $?") as screen:
        screen.shows("PAUSED")  # at the end
        screen.until(lambda text: re.search(rf"{source} +gone", text), "the last look")
        screen.keys("[").until(lambda text: re.search(rf"{source} +idle", text), "the look before")
        screen.keys("]").until(lambda text: re.search(rf"{source} +gone", text), "the last look again")
        screen.keys("q").shows("ended 0")
    log.write_text("nothing\n")
    with Screen(tmp_path, f"{top(domain, '--replay', str(log))}; echo ended $?") as screen:
        assert "no snapshot" in screen.shows("ended 1")


# ---------------------------------------------------------------------- who dies while shown


@IN_TERMINAL
def test_a_killed_source_is_shown_and_goes(screen: Screen, peers: Peers) -> None:
    sender, receiver = peers.several(2)
    source = sender.do("source", topic="t")
    receiver.do("receiver", topic="t")
    sender.do("joined", topic="t")
    screen.shows(source)
    sender.kill()
    screen.until(lambda text: re.search(rf"{source} +(dead|gone)", text), "the dead source")
    screen.lacks(source)
    assert "Traceback" not in screen.text()
    receiver.end()
    screen.shows("no session in this domain")


@IN_TERMINAL
def test_all_are_killed(screen: Screen, peers: Peers, domain: str) -> None:
    both = peers.several(2)
    source = both[0].do("source", topic="t")
    both[1].do("receiver", topic="t")
    both[0].do("joined", topic="t")
    screen.shows(str(both[1].pid))
    for each in both:
        each.kill()
    screen.until(lambda text: re.search(rf"{source} +dead", text), "the dead source")
    assert "dead 2" in screen.shows("2 dead contexts")  # what they left is still there, and said
    ipcbus.Context(domain=domain).close()  # removes it
    screen.lacks("dead 2")


@IN_TERMINAL
def test_a_killed_receiver_goes(screen: Screen, peers: Peers) -> None:
    sender, receiver = peers.several(2)
    sender.do("source", topic="t")
    receiver.do("receiver", topic="t")
    sender.do("joined", topic="t")
    screen.shows(str(receiver.pid))
    receiver.kill()
    screen.lacks(str(receiver.pid))
    screen.shows("no receiver")


@IN_TERMINAL
def test_a_killed_receiver_of_a_stopped_source_goes_too(screen: Screen, peers: Peers) -> None:
    sender, receiver = peers.several(2)
    source = sender.do("source", topic="t")
    receiver.do("receiver", topic="t")
    sender.do("joined", topic="t")
    screen.shows(str(receiver.pid))
    sender.pause()
    receiver.kill()
    screen.lacks(str(receiver.pid))
    assert source in screen.text()
    sender.resume()


@IN_TERMINAL
def test_who_holds_up_whom(screen: Screen, peers: Peers) -> None:
    sender, receiver = peers.several(2)
    source = sender.do("source", topic="t", transport="lbtsmx")
    receiver.do("receiver", topic="t")
    sender.do("joined", topic="t")
    receiver.pause()
    sender.do("stream", topic="t", size=1000)
    screen.until(lambda text: re.search(rf"{source} +blocked", text), "the blocked source")
    text = screen.shows(f"held up by pid {receiver.pid}")
    assert re.search(rf"^! +{receiver.pid}", text, re.MULTILINE)
    receiver.resume()
    sender.do("halt")
    screen.lacks("blocked ")


# ---------------------------------------------------------------------- whose it is


@IN_TERMINAL
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_sessions_of_another_user(domain: str, tmp_path: Path, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="secret")
    tmp_path.chmod(0o755)
    # What is imported late could not be read any more: all of it may belong to root alone. So one look comes before.
    code = (
        "import os, sys, rich.screen, ipcbus.context, ipcbus_tools.commands.top_command; "
        "from ipcbus_tools.top import live_view as live; "
        "from ipcbus_tools.cli import cli; from rich.cells import cell_len; cell_len('\u2191'); out = sys.stdout; "
        f"sys.stdout = open(os.devnull, 'w'); live.once({domain!r}, 0.05); sys.stdout = out; "
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY}); cli.main(sys.argv[1:], prog_name='ipcbus')"
    )
    command = [sys.executable, "-c", code, "top", "--domain", domain, "--interval", QUICK]
    with Screen(tmp_path, shlex.join(command), 160) as screen:
        text = screen.until(lambda text: re.search(rf"{source} +not readable +\S", text), "the session and the reason")
        assert "not readable 1" in text
        assert "Permission" in text or "permission" in text or "uid" in text
        screen.keys("d").shows("not readable")
        assert "Traceback" not in screen.text()
    once = subprocess.run([*command, "--once"], capture_output=True, text=True, check=True)
    assert source in once.stdout
    assert "Traceback" not in once.stderr


# ---------------------------------------------------------------------- for programs and pipes


def test_without_a_terminal(domain: str) -> None:
    with started("top", "--domain", domain) as process:
        _, errors = process.communicate()
    assert process.returncode == 2
    assert "--once" in errors


def test_once_for_people(domain: str, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="quotes")
    with started("top", "--once", "--domain", domain, "--interval", QUICK) as process:
        output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert re.search(rf"{source} +idle", output)
    assert re.search(rf"quotes +{source}", output)


def test_json_agrees_with_what_was_sent(domain: str) -> None:
    with (
        ipcbus.Context(domain=domain) as context,
        started("top", "--json", "-n", "3", "--domain", domain, "--interval", QUICK) as process,
    ):
        source = context.source("t", transport="lbtsmx")
        assert process.stdout is not None
        first = stats.DomainSnapshot.from_dict(json.loads(process.stdout.readline()))
        for _ in range(5000):
            source.send(b"x" * 64)
        rest = [stats.DomainSnapshot.from_dict(json.loads(line)) for line in process.stdout]
    assert process.returncode == 0
    assert len(rest) == 2
    counted = [sum(each.counters["lbm_msgs_sent"] for each in found.sessions) for found in (first, *rest)]
    assert counted[-1] == 5000
    grown = 0.0
    for before, found in zip((first, *rest), rest, strict=False):
        for session in found.sessions:
            was = before.session(session.source)
            elapsed = (session.read_ns - (was.read_ns if was else before.read_ns)) / 1e9
            grown += session.per_second["lbm_msgs_sent"] * elapsed
    assert grown == pytest.approx(5000 - counted[0])


def test_a_picture(domain: str, tmp_path: Path, peers: Peers) -> None:
    (sender,) = peers.several(1)
    source = sender.do("source", topic="quotes")
    with started(
        "top", "--once", "--svg", str(tmp_path / "top.svg"), "--domain", domain, "--interval", QUICK
    ) as process:
        _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert source in (tmp_path / "top.svg").read_text()
