"""The memory judgement: its rules in their order, what "inside" means, and what it advises."""

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory import (
    BOUNDARY_TAGS,
    BoundaryTag,
    EngineBackend,
    MemoryWriteBoundaryFacts,
    build_memory_write_boundary_audit,
    effective_memory_persistence_capable,
    memory_mount_root,
)

DROPPED: BoundaryTag = "memory_remote_lane_write_instruction_dropped"
OUTSIDE: BoundaryTag = "memory_root_outside_write_boundary"

OUTSIDE_THE_FENCE = MemoryWriteBoundaryFacts(
    memory_root="/home/sema/.ai-agent/memory",
    lane="in-process",
    host_semantics_lane=True,
    core_remote_execution_env=False,
    declared_capable=None,
    engine_backend="file",
    containment_roots=("/srv/work",),
)
REMOTE = dataclasses.replace(
    OUTSIDE_THE_FENCE,
    lane="k8s",
    host_semantics_lane=False,
    core_remote_execution_env=True,
    containment_roots=(),
)
ROOT_VARIABLES = (
    "MEMORY_ENGINE_DIR",
    "LOCAL_DATA_ROOT",
    "AGENT_DATA_DIR",
    "WORKSPACE_ROOTS",
)


def tags(facts: MemoryWriteBoundaryFacts, **changes: Any) -> list[str]:
    return [
        warning.tag
        for warning in build_memory_write_boundary_audit(dataclasses.replace(facts, **changes))
    ]


def detail(facts: MemoryWriteBoundaryFacts, **changes: Any) -> str:
    (warning,) = build_memory_write_boundary_audit(dataclasses.replace(facts, **changes))
    return warning.detail


def tags_inside(memory_root: str, *fences: str) -> list[str]:
    return tags(OUTSIDE_THE_FENCE, memory_root=memory_root, containment_roots=fences)


class TestEffectiveCapability:
    @pytest.mark.parametrize("provider", [None, "", "host", "k8s", "e2b", "ssh"])
    @pytest.mark.parametrize("declared", [True, False])
    def test_a_declaration_always_wins(self, provider: str | None, declared: bool) -> None:
        assert effective_memory_persistence_capable(provider, declared) is declared

    def test_host_is_capable_without_a_declaration(self) -> None:
        assert effective_memory_persistence_capable("host", None) is True

    @pytest.mark.parametrize("provider", [None, "", "k8s", "e2b", "ssh", "local-docker", "HOST"])
    def test_nothing_else_is_capable_by_itself(self, provider: str | None) -> None:
        assert effective_memory_persistence_capable(provider, None) is None


class TestMountRoot:
    @pytest.mark.parametrize(
        ("root", "mounted"),
        [("/data", "/data/memory"), ("/data/", "/data/memory"), ("/", "/memory")],
    )
    def test_the_file_engine_mounts_one_level_below_its_root(self, root: str, mounted: str) -> None:
        assert memory_mount_root("file", root) == mounted

    @pytest.mark.parametrize("backend", ["pg", "tidb"])
    def test_the_sql_engines_mount_their_root_itself(self, backend: EngineBackend) -> None:
        assert memory_mount_root(backend, "/data/memory-work") == "/data/memory-work"


class TestRules:
    @pytest.mark.parametrize("facts", [OUTSIDE_THE_FENCE, REMOTE])
    @pytest.mark.parametrize("memory_root", [None, ""])
    def test_without_an_engine_there_is_nothing_to_say(
        self, facts: MemoryWriteBoundaryFacts, memory_root: str | None
    ) -> None:
        assert tags(facts, memory_root=memory_root) == []

    @pytest.mark.parametrize("facts", [OUTSIDE_THE_FENCE, REMOTE])
    @pytest.mark.parametrize("declared", [True, False])
    def test_a_declaration_either_way_silences_both_rules(
        self, facts: MemoryWriteBoundaryFacts, declared: bool
    ) -> None:
        assert tags(facts, declared_capable=declared) == []

    @pytest.mark.parametrize("host_semantics", [True, False])
    def test_a_lane_core_calls_remote_loses_the_instruction_wherever_its_files_are(
        self, host_semantics: bool
    ) -> None:
        assert tags(REMOTE, host_semantics_lane=host_semantics) == [DROPPED]

    def test_host_is_remote_to_core_while_nothing_is_declared(self) -> None:
        assert tags(REMOTE, lane="host", host_semantics_lane=True) == [DROPPED]

    def test_the_remote_rule_comes_first_and_alone(self) -> None:
        assert tags(OUTSIDE_THE_FENCE, core_remote_execution_env=True) == [DROPPED]

    def test_the_remote_rule_does_not_ask_where_the_root_lies(self) -> None:
        assert tags(REMOTE, memory_root="/srv/work/m", containment_roots=("/srv",)) == [DROPPED]

    def test_a_root_inside_no_fence_is_named(self) -> None:
        assert tags(OUTSIDE_THE_FENCE) == [OUTSIDE]
        assert tags(OUTSIDE_THE_FENCE, containment_roots=("/srv/a", "/srv/b")) == [OUTSIDE]

    def test_the_fence_counts_only_where_file_tools_see_this_disk(self) -> None:
        assert tags(OUTSIDE_THE_FENCE, host_semantics_lane=False) == []

    @pytest.mark.parametrize("fences", [(), ("",)])
    def test_an_unknown_fence_is_no_finding(self, fences: tuple[str, ...]) -> None:
        assert tags(OUTSIDE_THE_FENCE, containment_roots=fences) == []

    def test_one_containing_fence_of_several_is_enough(self) -> None:
        assert tags(OUTSIDE_THE_FENCE, containment_roots=("/srv", "/home/sema", "/opt")) == []

    def test_the_lane_name_is_never_judged(self) -> None:
        assert tags(OUTSIDE_THE_FENCE, lane="k8s") == [OUTSIDE]

    def test_every_tag_that_can_be_raised_is_listed(self) -> None:
        assert set(BOUNDARY_TAGS) == {DROPPED, OUTSIDE}


class TestInside:
    @pytest.mark.parametrize(
        ("memory_root", "fence"),
        [
            pytest.param("/data/work/memory", "/data/work", id="child"),
            pytest.param("/data/work", "/data/work", id="itself"),
            pytest.param("/data/work/", "/data/work", id="slash after the root"),
            pytest.param("/data/work/memory", "/data/work///", id="slashes after the fence"),
            pytest.param("/data//tasks/./memory", "/data/tasks", id="empty and dot names"),
            pytest.param("//data/work/memory", "/data/work", id="two slashes first"),
            pytest.param("/data/work/memory", "//data/work", id="two slashes first in the fence"),
            pytest.param("/data/other/../tasks/memory", "/data/tasks", id="dot-dot into the fence"),
            pytest.param("/data/work/memory", "/data/other/../work", id="dot-dot in the fence"),
            pytest.param("/data/work/memory", "/", id="everything is below /"),
            pytest.param("/", "//", id="/ is below itself"),
            pytest.param("/../data/work", "/data", id="nothing is above /"),
        ],
    )
    def test_contained(self, memory_root: str, fence: str) -> None:
        assert tags_inside(memory_root, fence) == []

    @pytest.mark.parametrize(
        ("memory_root", "fence"),
        [
            pytest.param("/data/workspace", "/data/work", id="sibling with the fence as prefix"),
            pytest.param("/data/workspace/memory", "/data/work/", id="the same with a slash"),
            pytest.param("/data/work-2", "/data/work", id="hyphenated sibling"),
            pytest.param("/data", "/data/work", id="parent of the fence"),
            pytest.param("/", "/data", id="/ itself"),
            pytest.param("/data/work/../memory", "/data/work", id="dot-dot out of the fence"),
            pytest.param("/data/work/..", "/data/work", id="dot-dot to the parent"),
            pytest.param("/data/work/memory", "/data/work/..data", id="name that starts with dots"),
            pytest.param("/Data/work/memory", "/data/work", id="other case"),
        ],
    )
    def test_not_contained(self, memory_root: str, fence: str) -> None:
        assert tags_inside(memory_root, fence) == [OUTSIDE]

    @pytest.mark.parametrize("memory_root", ["memory", "./memory", "../memory", "~/memory"])
    def test_a_relative_memory_root_is_an_unknown_place(self, memory_root: str) -> None:
        assert tags_inside(memory_root, "/srv/work") == []

    def test_a_relative_fence_might_contain_anything(self) -> None:
        assert tags_inside("/data/memory", "work") == []
        assert tags_inside("/data/memory", "/srv/work", "work") == []

    @given(
        memory_root=st.lists(st.sampled_from(["a", "ab", "b", "..", ".", ""]), max_size=7),
        fences=st.lists(
            st.lists(st.sampled_from(["a", "ab", "b", "..", ".", ""]), max_size=4),
            min_size=1,
            max_size=3,
        ),
    )
    @example(memory_root=["ab"], fences=[["a"]])
    @example(memory_root=["a", "..", "..", "b"], fences=[["b", "", ""]])
    def test_agrees_with_walking_the_names_one_by_one(
        self, memory_root: list[str], fences: list[list[str]]
    ) -> None:
        """Any mixture of dots, doubled slashes and sibling prefixes is judged by whole names."""
        place = walked(memory_root)
        ancestors = {tuple(place[:depth]) for depth in range(len(place) + 1)}
        inside = any(tuple(walked(fence)) in ancestors for fence in fences)

        found = tags_inside("/" + "/".join(memory_root), *("/" + "/".join(f) for f in fences))

        assert found == ([] if inside else [OUTSIDE])


def walked(names: list[str]) -> list[str]:
    """Where one stands after entering each name in turn, starting at the top."""
    place: list[str] = []
    for name in names:
        if name == "..":
            del place[-1:]
        elif name not in {"", "."}:
            place.append(name)
    return place


class TestAdvice:
    @pytest.mark.parametrize("facts", [REMOTE, OUTSIDE_THE_FENCE])
    def test_is_a_sentence_with_lane_and_root_and_both_declarations(
        self, facts: MemoryWriteBoundaryFacts
    ) -> None:
        text = detail(facts)
        assert text[0].isupper()
        assert text.endswith(".")
        assert f"'{facts.lane}'" in text
        assert f"'{facts.memory_root}'" in text
        assert "MEMORY_PERSISTENCE_CAPABLE=true" in text
        assert "MEMORY_PERSISTENCE_CAPABLE=false" in text
        assert "additionalDirectories" not in text

    @pytest.mark.parametrize("backend", ["file", "pg", "tidb"])
    @pytest.mark.parametrize("lane", ["k8s", "host"])
    def test_never_moves_a_root_for_a_lane_that_core_calls_remote(
        self, lane: str, backend: EngineBackend
    ) -> None:
        text = detail(REMOTE, lane=lane, engine_backend=backend)
        assert not [name for name in ROOT_VARIABLES if name in text]

    @pytest.mark.parametrize(
        ("backend", "variable"),
        [("file", "MEMORY_ENGINE_DIR"), ("pg", "LOCAL_DATA_ROOT"), ("tidb", "LOCAL_DATA_ROOT")],
    )
    def test_names_only_the_variable_that_moves_this_back_ends_root(
        self, backend: EngineBackend, variable: str
    ) -> None:
        text = detail(OUTSIDE_THE_FENCE, engine_backend=backend)
        assert [name for name in ROOT_VARIABLES if name in text] == [variable]

    def test_lists_the_fences_and_admits_what_moving_the_root_does_not_give(self) -> None:
        text = detail(OUTSIDE_THE_FENCE, containment_roots=("/srv/a", "/srv/b"))
        assert "('/srv/a', '/srv/b')" in text
        assert "reach, not a file tool" in text
        assert "does not prove" in text
