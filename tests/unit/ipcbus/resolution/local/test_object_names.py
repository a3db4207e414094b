"""Names of shared objects."""

from __future__ import annotations

from ipcbus.resolution.local import object_names
from ringbuf.segment import NAME_MAX
from tests.kit.cases import each_of


@each_of("domain", ["a", "default", "t-1_x", "12345678"])
def test_a_short_plain_domain_stands_in_its_names(domain: str) -> None:
    assert object_names.registry(domain, 0x1F) == f"ipcbus.{domain}.0000001f.g"
    assert object_names.bell(domain, 0x1F) == f"ipcbus.{domain}.0000001f.w"
    assert object_names.ring(domain, 0x1F, 0xA) == f"ipcbus.{domain}.0000001f.ra"
    assert object_names.control(domain, 0x1F, 0xA) == f"ipcbus.{domain}.0000001f.ca"


@each_of("domain", ["", "123456789", "A", "a.b", "a/b", "ä", "+abcdefg", "x" * 1000])
def test_any_other_domain_has_a_tag_that_no_plain_one_has(domain: str) -> None:
    tag = object_names.domain_tag(domain)
    assert tag != domain or domain.startswith("+")
    assert tag.startswith("+")
    assert len(tag) == 8
    assert object_names.domain_tag(domain) == tag


def test_the_longest_name_is_short_enough() -> None:
    assert len(object_names.ring("12345678", 0xFFFFFFFF, 0xFFFF)) <= NAME_MAX
    assert len(object_names.pipe("12345678", 0xFFFFFFFF, 0xFFFF)) <= NAME_MAX


def test_a_name_is_parsed_into_what_it_was_made_of() -> None:
    assert object_names.parse(object_names.ring("dom", 0xABC, 0x1F)) == ("dom", 0xABC, "r1f")
    assert object_names.parse(object_names.registry("A", 1)) == (object_names.domain_tag("A"), 1, "g")


@each_of(
    "name",
    [
        "",
        "ipcbus.",
        "ipcbus.dom.00000001.x",
        "ipcbus.dom.0000001.g",
        "ipcbus.dom.00000001.g.more",
        "other.dom.00000001.g",
        "ipcbus.toolong99.00000001.g",
        "ipcbus.dom.0000000G.g",
        "ipcbus.dom.00000001.r12345",
    ],
)
def test_what_is_no_name_of_ours_is_not_parsed(name: str) -> None:
    assert object_names.parse(name) is None


def test_all_names_of_a_context_have_its_prefix() -> None:
    prefix = object_names.context_prefix("dom", 7)
    assert prefix.startswith(object_names.domain_prefix("dom"))
    for name in (
        object_names.registry("dom", 7),
        object_names.bell("dom", 7),
        object_names.pipe("dom", 7, 0xFFFF),
        object_names.ring("dom", 7, 1),
        object_names.control("dom", 7, 1),
    ):
        assert name.startswith(prefix)
