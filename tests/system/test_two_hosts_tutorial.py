"""The tutorial of two hosts, between two network namespaces with shared memory of their own."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest

from tests.system.test_docs import blocks, place, shell, write_files, write_programs
from tests.system.test_two_hosts import Hosts

PAGE = "tutorial/two-hosts.md"

__all__ = ["place"]


@pytest.mark.timeout(300)  # a dozen interpreters start
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces")
def test_what_the_page_types_on_two_hosts_prints_what_it_shows(domain: str) -> None:
    write_files(PAGE)
    write_programs(PAGE, domain)
    lines = [line for session in blocks(PAGE, "console") for line in session.splitlines()]
    begin = f"set -m\ncd {Path.cwd()}\n{shell(domain)}"  # with -m each job is a group of processes, which can be killed
    with contextlib.ExitStack() as stack:
        hosts = Hosts(stack)
        scripts = [
            "\n".join([begin, *re.findall(rf"^{name}\$ (.*)$", "\n".join(lines), re.MULTILINE)]) for name in "ab"
        ]
        first, second = (
            hosts.shell(number, f"{script}\nfor job in $(jobs -p); do kill -- -$job; done")
            for number, script in enumerate(scripts)
        )
        shown, problems = second.communicate()
        first.communicate()
    assert shown.splitlines() == [line for line in lines if not re.match(r"[ab]\$ ", line)], problems
